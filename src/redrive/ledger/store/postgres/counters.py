"""Counters on Postgres: each change is a row, so no writer waits for a caller's open transaction.

`fold` sums the rows up. Workers call it regularly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sqlalchemy import BigInteger, Text, bindparam, case, delete, exists, func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert

from ...db.compiled import Runner, compile_postgres, int_array, text_array, unnest
from ...db.session import Session
from ...db.tables import (
    BUCKETS,
    FAILURES,
    failure,
    failure_delta,
    failure_slot,
    tally,
    tally_delta,
)
from ...stats.failure_groups import (
    ALL_SIGNATURES,
    FailureDelta,
    FailureGroup,
    FailureSummary,
    merge_summaries,
    slot_of,
)

MAX_FOLDED = 10_000

ADD = compile_postgres(
    insert(tally_delta).values({name: bindparam(name) for name in ("kind", *BUCKETS)})
)
_ZEROS = dict.fromkeys(BUCKETS, 0)
_ARRAYS: dict[str, Callable[[Iterable[Any]], str]] = {
    **dict.fromkeys(("kind", "signature"), text_array),
    **dict.fromkeys((*FAILURES, "job_id"), int_array),
    "error": text_array,
}
_types = {name: Text() if array is text_array else BigInteger() for name, array in _ARRAYS.items()}
_changed = select(*unnest("new", **_types).c, func.now())
ADD_FAILURES = compile_postgres(insert(failure_delta).from_select([*_ARRAYS, "at"], _changed))


def add(run: Runner, kind: str, /, **changes: int) -> None:
    """Add to the counters of a job type."""
    run.execute(ADD, {"kind": kind, **_ZEROS, **changes})


def add_all(run: Runner, changes: Mapping[str, Mapping[str, int]], /) -> None:
    """Add to the counters of several job types."""
    for kind, change in changes.items():
        add(run, kind, **change)


def add_failures(run: Runner, changes: Mapping[FailureGroup, FailureDelta], /) -> None:
    """Add to the counters of failures, in one round trip."""
    if changes:
        columns = zip(*((*group, *change) for group, change in changes.items()), strict=True)
        arrays = zip(_ARRAYS.items(), columns, strict=True)
        values = {f"new_{name}": to_array(column) for (name, to_array), column in arrays}
        run.execute(ADD_FAILURES, values)


# --- Fold

_oldest = (
    select(tally_delta.c.id)
    .order_by(tally_delta.c.id)
    .limit(MAX_FOLDED)
    .with_for_update(skip_locked=True)
)
_deleted = (
    delete(tally_delta)
    .where(tally_delta.c.id.in_(_oldest.scalar_subquery()))
    .returning(tally_delta)
    .cte("deleted")
)
# Sorted, so that concurrent folds cannot deadlock.
_sums = (
    select(_deleted.c.kind, *(func.sum(_deleted.c[name]) for name in BUCKETS))
    .group_by(_deleted.c.kind)
    .order_by(_deleted.c.kind)
)
_new = upsert(tally).from_select(["kind", *BUCKETS], _sums)
_added = _new.on_conflict_do_update(
    index_elements=[tally.c.kind],
    set_={name: tally.c[name] + _new.excluded[name] for name in BUCKETS},
).cte("added")
_FOLD = select(func.count()).select_from(_deleted).add_cte(_added)


def fold(session: Session, /) -> int:
    """Sum up rows of changed counters of job types, and return how many."""
    with session.single_statement("fold") as connection:
        count: int = connection.execute(_FOLD).scalar_one()
    return count


_HAS_DELTAS = select(exists().select_from(failure_delta))
_oldest_failures = (
    select(failure_delta.c.id)
    .order_by(failure_delta.c.id)
    .limit(MAX_FOLDED)
    .with_for_update(skip_locked=True)
)
_DELETE_DELTAS = (
    delete(failure_delta)
    .where(failure_delta.c.id.in_(_oldest_failures.scalar_subquery()))
    .returning(failure_delta)
)
_add = upsert(failure)
_has_failed = _add.excluded.job_id.is_not(None)
_latest = func.greatest(failure.c.last_at, _add.excluded.last_at)
_ADD_GROUP = _add.on_conflict_do_update(
    index_elements=[failure.c.kind, failure.c.signature],
    set_={
        **{name: failure.c[name] + _add.excluded[name] for name in FAILURES},
        "first_at": func.least(failure.c.first_at, _add.excluded.first_at),
        "last_at": case((_has_failed, _latest), else_=failure.c.last_at),
        "job_id": func.coalesce(_add.excluded.job_id, failure.c.job_id),
        "error": func.coalesce(_add.excluded.error, failure.c.error),
    },
)
_add_slot = upsert(failure_slot)
_ADD_SLOT = _add_slot.on_conflict_do_update(
    index_elements=[failure_slot.c.slot, failure_slot.c.kind, failure_slot.c.signature],
    set_={name: failure_slot.c[name] + _add_slot.excluded[name] for name in ("tries", "died")},
)


def fold_failures(session: Session, /) -> int:
    """Sum up rows of changed counters of failures, and return how many."""
    if not session.core.execute(_HAS_DELTAS).scalar():
        return 0  # one round trip instead of a transaction: usually there are none
    with session.transaction("fold") as connection:
        rows = connection.execute(_DELETE_DELTAS).all()
        groups: dict[FailureGroup, FailureSummary] = {}
        slots: dict[tuple[int, str, str], tuple[int, int]] = {}
        for row in sorted(rows, key=lambda each: each.id):
            counts = (getattr(row, name) for name in FAILURES)
            new = FailureSummary._make(
                (row.kind, row.signature, *counts, row.at, row.at, row.job_id, row.error)
            )
            merge_summaries(groups, [new])
            if new.tries or new.died:
                for signature in (new.signature, ALL_SIGNATURES):
                    slot = (slot_of(row.at), new.kind, signature)
                    tries, died = slots.get(slot, (0, 0))
                    slots[slot] = (tries + new.tries, died + new.died)
        for group in sorted(groups):  # sorted, so that concurrent folds cannot deadlock
            connection.execute(_ADD_GROUP, groups[group]._asdict())
        for slot in sorted(slots):
            number, kind, signature = slot
            tries, died = slots[slot]
            connection.execute(
                _ADD_SLOT,
                {
                    "slot": number,
                    "kind": kind,
                    "signature": signature,
                    "tries": tries,
                    "died": died,
                },
            )
    return len(rows)
