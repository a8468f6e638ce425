"""Counts on SQLite: changed in place, since there is one writer at a time anyway."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat

from sqlalchemy import bindparam
from sqlalchemy.dialects.sqlite import insert

from ...db.compiled import Runner, sqlite
from ...db.tables import BUCKETS, tally

_fresh = insert(tally).values({name: bindparam(name) for name in ("kind", *BUCKETS)})
ADD = sqlite(
    _fresh.on_conflict_do_update(
        index_elements=[tally.c.kind], set_={name: tally.c[name] + _fresh.excluded[name] for name in BUCKETS}
    ),
    "kind",
    *BUCKETS,
).text

_NONE = repeat(0)


def add(run: Runner, kind: str, /, **changes: int) -> None:
    """Add to the counts of a kind."""
    run.execute(ADD, (kind, *map(changes.get, BUCKETS, _NONE)))


def add_all(run: Runner, changes: Mapping[str, Mapping[str, int]], /) -> None:
    """Add to the counts of several kinds."""
    for kind, change in changes.items():
        add(run, kind, **change)
