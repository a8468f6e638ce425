"""What can be wrong with partitions: counts that don't balance, sources that rest, raw data that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from ..errors import Damaged, StorageError
from .datasets import extractions
from .finding import Finding
from .moments import utc
from .source import ledger_of

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..partitions.extraction import Extraction
    from ..partitions.partition import Partition
    from .source import Operated

GRACE = timedelta(seconds=60)
"""For which what is overdue may be so: workers look now and then."""
LOOKED = 50
"""Runs in force that are looked at from either end, of each dataset: to look at millions would take hours."""
AT_ONCE = 8


def rollups(ledger: Ledger, /) -> Iterator[Finding]:
    """The calendar against the rows."""
    from ..partitions.register import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    wrong = Register(ledger).imbalance()
    if wrong:
        says = "the calendar's counts don't balance with the partitions: " + "; ".join(wrong[:5])
        mend = "somebody wrote there without redrive: find out who, and compare with a backup"
        yield Finding("calendar", "critical", says, len(wrong), None, mend, False)


def paused(ledger: Ledger, /) -> Iterator[Finding]:
    """Sources of which nothing is handed out."""
    from ..partitions.register import Register  # noqa: PLC0415  # the same

    for one in Register(ledger).sources():
        if one.paused:
            until = "until somebody says so" if one.until is None else f"and probed {utc(one.until)} UTC"
            says = f"source {one.source} is paused by {one.actor}, {until}: {one.because}"
            mend = f'redrive state unpause {one.source} --whole-source --because "..."'
            yield Finding("source paused", "warning", says, 1, None, mend)


def leases(ledger: Ledger, /) -> Iterator[Finding]:
    """Extractions whose worker is gone, and that nobody took back."""
    from sqlalchemy import func, select  # noqa: PLC0415  # the same

    from ..ledger.partition_tables import work  # noqa: PLC0415

    over = ledger.now() - GRACE
    with ledger.reading() as connection:
        query = select(func.count(), func.min(work.c.lease_until)).where(work.c.lease_until < over)
        many, since = connection.execute(query).one()
    if many:
        says = f"{many:,} extractions are leased to workers that are gone, and nobody took them back: no worker looks here"
        yield Finding("dangling extractions", "critical", says, many, since, "redrive work module:app", False)


def lost(app: Operated, /) -> Iterator[Finding]:
    """Runs in force whose raw data is gone, or is not as large as it was. Nothing of a bare ledger, which knows no stores."""
    for extraction in extractions(app):
        chosen = _in_force(ledger_of(app), *extraction.terms.dataset)
        look = partial(_missing, extraction)
        try:
            with ThreadPoolExecutor(AT_ONCE, "redrive-doctor") as threads:
                gone = [one for one in threads.map(look, chosen) if one is not None]
        except StorageError as problem:
            says = f"the raw data of {extraction.name} cannot be looked at: {problem}"
            yield Finding("raw data", "warning", says, 1, None, "redrive storage check", False)
            continue
        if gone:
            says = f"{len(gone)} of {len(chosen)} runs in force of {extraction.name} have lost their raw data, such as {gone[0]}"
            mend = f'redrive state reprocess {gone[0]} --because "..."'
            yield Finding("raw data", "critical", says, len(gone), None, mend)


def _missing(extraction: Extraction, one: tuple[Partition, str]) -> Partition | None:
    from ..partitions.raw import raw  # noqa: PLC0415  # storage: not before it is looked at

    partition, run_id = one
    try:
        raw(extraction.store(), partition, run_id)
    except Damaged:
        return partition
    return None


def _in_force(ledger: Ledger, source: str, query: str) -> list[tuple[Partition, str]]:
    """The oldest of them, which rules for old files take first, and the newest."""
    from sqlalchemy import select  # noqa: PLC0415  # the same

    from ..ledger.partition_tables import partition  # noqa: PLC0415
    from ..partitions.partition import Partition  # noqa: PLC0415

    of = partition.c
    query_ = select(of.source, of.customer_id, of.query_name, of.logical_date, of.current_raw_id).where(
        of.source == source, of.query_name == query, of.current_raw_id.is_not(None)
    )
    found: dict[Partition, str] = {}
    with ledger.reading() as connection:
        for order in (of.logical_date, of.logical_date.desc()):
            for row in connection.execute(query_.order_by(order).limit(LOOKED)):
                found[Partition(*row[:4])] = row[4]
    return list(found.items())
