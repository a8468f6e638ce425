"""Counters on SQLite: changed in place, because there is one writer at a time."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat

from sqlalchemy import bindparam, case, func
from sqlalchemy.dialects.sqlite import insert

from ...db.compiled import Runner, compile_sqlite
from ...db.tables import BUCKETS, FAILURES, failure, failure_slot, tally
from ...stats.failure_groups import (
    ALL_SIGNATURES,
    FailureDelta,
    FailureGroup,
    slot_of_micros,
)

_new = insert(tally).values({name: bindparam(name) for name in ("kind", *BUCKETS)})
_sums = {name: tally.c[name] + _new.excluded[name] for name in BUCKETS}
ADD = compile_sqlite(
    _new.on_conflict_do_update(index_elements=[tally.c.kind], set_=_sums), "kind", *BUCKETS
)
_ZEROS = repeat(0)


def add(run: Runner, kind: str, /, **changes: int) -> None:
    """Add to the counters of a job type."""
    run.execute(ADD, (kind, *map(changes.get, BUCKETS, _ZEROS)))


def add_all(run: Runner, changes: Mapping[str, Mapping[str, int]], /) -> None:
    """Add to the counters of several job types."""
    for kind, change in changes.items():
        add(run, kind, **change)


_COLUMNS = ("kind", "signature", *FAILURES, "first_at", "last_at", "job_id", "error")
_new_failure = insert(failure).values({name: bindparam(name) for name in _COLUMNS})
_excluded = _new_failure.excluded
_latest = func.max(failure.c.last_at, _excluded.last_at)
ADD_FAILURE = compile_sqlite(
    _new_failure.on_conflict_do_update(
        index_elements=[failure.c.kind, failure.c.signature],
        set_={
            **{name: failure.c[name] + _excluded[name] for name in FAILURES},
            "last_at": case((_excluded.job_id.is_not(None), _latest), else_=failure.c.last_at),
            "job_id": func.coalesce(_excluded.job_id, failure.c.job_id),
            "error": func.coalesce(_excluded.error, failure.c.error),
        },
    ),
    *_COLUMNS,
)
_SLOT_COLUMNS = ("slot", "kind", "signature", "tries", "died")
_new_slot = insert(failure_slot).values({name: bindparam(name) for name in _SLOT_COLUMNS})
ADD_SLOT = compile_sqlite(
    _new_slot.on_conflict_do_update(
        index_elements=[failure_slot.c.slot, failure_slot.c.kind, failure_slot.c.signature],
        set_={name: failure_slot.c[name] + _new_slot.excluded[name] for name in ("tries", "died")},
    ),
    *_SLOT_COLUMNS,
)


def add_failures(run: Runner, changes: Mapping[FailureGroup, FailureDelta], now: int, /) -> None:
    """Add to the counters of failures."""
    for (kind, signature), change in changes.items():
        counts = change[: len(FAILURES)]
        run.execute(ADD_FAILURE, (kind, signature, *counts, now, now, change.job_id, change.error))
        if change.tries or change.died:
            for name in (signature, ALL_SIGNATURES):
                run.execute(ADD_SLOT, (slot_of_micros(now), kind, name, change.tries, change.died))
