"""Leased: partitions that somebody has right now: left alone by every act, and listed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import select

from ...ledger.db.partition_tables import work
from ...partitions.queries import Register
from ...partitions.store.rows import chunks

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger
    from ...partitions.model import Selection

LISTED = 100
"""So many are named, one by one."""


def leased(ledger: Ledger, selection: Selection, /) -> dict[str, str]:
    """The first of them, as text, and who has each."""
    register = Register(ledger)
    with ledger.reading() as connection:
        busy = list(connection.execute(select(work.c.partition_id).where(work.c.lease_until.is_not(None))).scalars())
    mine = busy if selection.ids is None else sorted(set(busy) & set(selection.ids))
    found: dict[str, str] = {}
    for some in chunks(mine):
        facts = register.find(replace(selection, ids=some), limit=LISTED - len(found))
        found |= {str(one.partition): f"running now, by {one.worker}" for one in facts}
        if len(found) >= LISTED:
            break
    return found
