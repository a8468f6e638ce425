"""Counts on Postgres: each change is a row of its own, so that nobody waits for a caller's open transaction."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import bindparam, insert

from ...db.compiled import Runner, postgres
from ...db.tables import BUCKETS, tally_delta

ADD = postgres(insert(tally_delta).values({name: bindparam(name) for name in ("kind", *BUCKETS)})).text
_NONE = dict.fromkeys(BUCKETS, 0)


def add(run: Runner, kind: str, /, **changes: int) -> None:
    """Add to the counts of a kind."""
    run.execute(ADD, {"kind": kind, **_NONE, **changes})


def add_all(run: Runner, changes: Mapping[str, Mapping[str, int]], /) -> None:
    """Add to the counts of several kinds."""
    for kind, change in changes.items():
        add(run, kind, **change)
