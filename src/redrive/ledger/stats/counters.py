"""Counters of jobs by job type and state: changed, read, checked and corrected.

They change in the transaction of the rows that they count.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select, true, union_all

from ...core.lazy import deferred
from ...core.text import pluralise
from ..db.clock import now_on, now_sql
from ..db.compiled import sql_int
from ..db.session import Session
from ..db.tables import BUCKETS, dead, job, tally, tally_delta
from ..model import CANCELLED, DEAD, DONE, DROPPED, HELD, LEASED, PRUNED, READY, Tally
from ..timestamps import to_micros

if TYPE_CHECKING:
    from ..store.postgres import counters as on_postgres
    from ..store.sqlite import counters as on_sqlite
    from .failure_groups import FailureDelta, FailureGroup
else:  # each compiles its statements when it is imported
    on_postgres, on_sqlite = deferred(
        "redrive.ledger.store", "postgres.counters", "sqlite.counters"
    )


def add(session: Session, changes: Mapping[str, Mapping[str, int]], /) -> None:
    """Add to the counters of job types, in the open transaction."""
    (on_sqlite if session.sqlite else on_postgres).add_all(session.raw, changes)


def add_failures(
    session: Session, changes: Mapping[FailureGroup, FailureDelta], now: datetime, /
) -> None:
    """Add to the counters of failures, in the open transaction."""
    if session.sqlite:
        on_sqlite.add_failures(session.raw, changes, to_micros(now))
    else:
        on_postgres.add_failures(session.raw, changes)


def fold(session: Session, /) -> int:
    """Sum up the rows of changed counters (on Postgres), and return how many."""
    return 0 if session.sqlite else on_postgres.fold(session) + on_postgres.fold_failures(session)


if TYPE_CHECKING:
    from .. import audit
    from . import failures
else:  # few programs need them, and each builds its statements when it is imported
    audit, failures = deferred("redrive.ledger", "audit", "stats.failures")

STORED_BUCKETS = {
    READY: "ready",
    LEASED: "leased",
    DONE: "done",
    DEAD: "dead",
    DROPPED: "dropped",
}
"""By the stored state of their rows. Held jobs count as ready."""
KEPT_BUCKETS = {PRUNED: "pruned", CANCELLED: "cancelled"}
"""The same for jobs that stay counted when their rows are deleted."""

# Built once, because every page of the console runs it.
_rows = union_all(
    *(select(table.c.kind, *(table.c[name] for name in BUCKETS)) for table in (tally, tally_delta))
).subquery()
_sums = (func.sum(_rows.c[name]) for name in BUCKETS)
_COUNTS = select(_rows.c.kind, *_sums).group_by(_rows.c.kind).order_by(_rows.c.kind)


def counts(connection: Connection, /) -> dict[str, Tally]:
    """Return the counters of every job type."""
    rows = connection.execute(_COUNTS).all()
    return {kind: Tally(*map(int, numbers)) for kind, *numbers in rows}


def counts_now(session: Session, /) -> tuple[datetime, dict[str, Tally]]:
    """Return the time of the ledger's clock and the counters of every job type, in one query."""
    clock, counted = select(now_sql(session).label("now")).subquery(), _COUNTS.subquery()
    query = select(clock.c.now, counted).select_from(clock.outerjoin(counted, true()))
    rows = session.core.execute(query).all()
    tallies = {kind: Tally(*map(int, numbers)) for _, kind, *numbers in rows if kind is not None}
    return rows[0][0], dict(sorted(tallies.items()))


def _rows_by_state(connection: Connection) -> dict[str, dict[int, int]]:
    """Count the rows of each job type and stored state."""
    query = select(job.c.kind, job.c.state, func.count()).group_by(job.c.kind, job.c.state)
    states: dict[str, dict[int, int]] = {}
    for kind, state, count in connection.execute(query):
        rows = states.setdefault(kind, {})
        counted_as = READY if state == HELD else state
        rows[counted_as] = rows.get(counted_as, 0) + count
    return states


def imbalance(connection: Connection, /) -> list[str]:
    """Return where the counters differ from the rows. Reads every row."""
    problems = []
    counted, stored = counts(connection), _rows_by_state(connection)
    for kind in sorted(counted.keys() | stored.keys()):
        tally_, rows = counted.get(kind, Tally()), stored.get(kind, {})
        if not tally_.balanced:
            problems.append(f"{kind}: submitted is not the sum of the other states: {tally_}")
        for state, bucket in STORED_BUCKETS.items():
            count = getattr(tally_, bucket)
            if count != rows.get(state, 0):
                problems.append(
                    f"{kind}: {bucket} is counted {count}, and there are {rows.get(state, 0)}"
                )
        for state, bucket in KEPT_BUCKETS.items():
            count = getattr(tally_, bucket)
            if count < rows.get(state, 0):
                problems.append(f"{kind}: {bucket} is counted {count}, and there are {rows[state]}")
    return problems + _dead_letter_imbalance(connection)


def _dead_letter_imbalance(connection: Connection) -> list[str]:
    def count(*where: object) -> int:
        return connection.scalar(select(func.count()).where(*where)) or 0  # type: ignore[arg-type]

    dead_jobs = count(job.c.state == sql_int(DEAD))
    pending = count(dead.c.status == "pending", dead.c.job_id.is_not(None))
    # A cancelled replay keeps its state. Its dead letter is pending again.
    is_cancelled = (job.c.id == dead.c.job_id, job.c.state == sql_int(CANCELLED))
    pending -= count(dead.c.status == "pending", *is_cancelled)
    replays = count(job.c.state.in_((READY, LEASED, HELD)), job.c.dead_id.is_not(None))
    replaying = count(dead.c.status == "replaying")
    problems = []
    if dead_jobs != pending:
        jobs = pluralise(dead_jobs, "job is", "jobs are")
        letters = pluralise(pending, "dead letter is", "dead letters are")
        problems.append(f"{jobs} dead, but {letters} pending")
    if replays != replaying:
        jobs = pluralise(replays, "replay is", "replays are")
        letters = pluralise(replaying, "dead letter is", "dead letters are")
        problems.append(f"{jobs} in progress, but {letters} replaying")
    return problems


def recount(session: Session, /, *, actor: str, because: str) -> dict[str, dict[str, int]]:
    """Correct the counters from the rows, after rows were changed by hand.

    Concurrent workers are not blocked: they change rows and counters by the same amount.

    Returns:
        The corrections by job type.
    """
    audit.check_actor(actor, because)
    # The audit lock is taken before the snapshot, which must contain the last audit entry.
    with session.serialized_snapshot("fold", audit.LOCK) as connection:
        counted, stored = counts(connection), _rows_by_state(connection)
        changes: dict[str, dict[str, int]] = {}
        for kind in sorted(counted.keys() | stored.keys()):
            change = _correction(counted.get(kind, Tally()), stored.get(kind, {}))
            if change:
                changes[kind] = change
                add(session, {kind: change})
        drift = failures.drift_from_rows(connection)
        if drift:
            add_failures(session, drift, now_on(session))
        for (kind, _signature), delta in drift.items():
            change = changes.setdefault(kind, {})
            change["pending"] = change.get("pending", 0) + delta.pending
        if changes:
            what = {"added": changes}
            audit.write(session, actor=actor, action="ledger.recount", because=because, what=what)
    return changes


def _correction(counted: Tally, rows: Mapping[int, int]) -> dict[str, int]:
    correct = {bucket: rows.get(state, 0) for state, bucket in STORED_BUCKETS.items()}
    # A pruned job has no row once its key has expired, and an old cancelled job has none.
    for state, bucket in KEPT_BUCKETS.items():
        correct[bucket] = max(getattr(counted, bucket), rows.get(state, 0))
    correct["submitted"] = sum(correct.values())
    changes = {bucket: count - getattr(counted, bucket) for bucket, count in correct.items()}
    return {bucket: change for bucket, change in changes.items() if change}
