"""Counts: kept in the same transaction as what they count, so that they balance at every moment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Select, delete, func, select, union_all

from ...core.lazy import deferred
from ...core.text import pluralise
from ..db.compiled import number
from ..db.session import Session
from ..db.tables import BUCKETS, dead, job, tally, tally_delta
from ..failpoint import crash_point
from ..record import Tally

if TYPE_CHECKING:
    from ..store.postgres import counters as on_postgres
    from ..store.sqlite import counters as on_sqlite
else:
    on_postgres, on_sqlite = deferred("redrive.ledger.store", "postgres.counters", "sqlite.counters")

FOLD = 10_000


def add(session: Session, changes: Mapping[str, Mapping[str, int]], /) -> None:
    """Add to the counts, in the transaction that is open."""
    (on_sqlite if session.sqlite else on_postgres).add_all(session.raw, changes)


def counts(connection: Connection, /) -> dict[str, Tally]:
    """The counts of every kind."""
    return {kind: Tally(*map(int, numbers)) for kind, *numbers in connection.execute(_SUMMED).all()}


# Built once: every page of an operator asks it.
_rows = union_all(*(select(table.c.kind, *(table.c[name] for name in BUCKETS)) for table in (tally, tally_delta))).subquery()
_sums = (func.sum(_rows.c[name]) for name in BUCKETS)
_SUMMED = select(_rows.c.kind, *_sums).group_by(_rows.c.kind).order_by(_rows.c.kind)


def fold(session: Session, /) -> int:
    """Sum up the rows that changes left on Postgres; how many they were."""
    if session.sqlite:
        return 0
    crash_point("fold.before_commit")  # one statement, in autocommit: one round trip
    folded: int = session.core.execute(_fold()).scalar_one()
    crash_point("fold.after_commit")
    return folded


@cache
def _fold() -> Select[int]:
    from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415  # all drivers come with it

    some = select(tally_delta.c.id).order_by(tally_delta.c.id).limit(FOLD).with_for_update(skip_locked=True)
    gone = delete(tally_delta).where(tally_delta.c.id.in_(some.scalar_subquery())).returning(tally_delta).cte("gone")
    # In one order, so that two who fold never wait for each other.
    sums = select(gone.c.kind, *(func.sum(gone.c[name]) for name in BUCKETS)).group_by(gone.c.kind).order_by(gone.c.kind)
    new = insert(tally).from_select(["kind", *BUCKETS], sums)
    added = new.on_conflict_do_update(
        index_elements=[tally.c.kind], set_={name: tally.c[name] + new.excluded[name] for name in BUCKETS}
    ).cte("added")
    return select(func.count()).select_from(gone).add_cte(added)


def imbalance(connection: Connection, /) -> list[str]:
    """What does not add up, in words. Reads every row: for `redrive doctor` and for tests."""
    wrong = []
    counted = counts(connection)
    stored: dict[str, dict[int, int]] = {}
    for kind, state, rows in connection.execute(select(job.c.kind, job.c.state, func.count()).group_by(job.c.kind, job.c.state)):
        stored.setdefault(kind, {})[state] = rows
    for kind in sorted(counted.keys() | stored.keys()):
        sums, rows_of = counted.get(kind, Tally()), stored.get(kind, {})
        if not sums.balanced:
            wrong.append(f"{kind}: submitted is not the sum of the other states: {sums}")
        for at, bucket in enumerate(("ready", "leased", "done", "dead", "dropped")):
            if getattr(sums, bucket) != rows_of.get(at, 0):
                wrong.append(f"{kind}: {bucket} is counted {getattr(sums, bucket)}, and there are {rows_of.get(at, 0)}")
        if sums.pruned < rows_of.get(5, 0):
            wrong.append(f"{kind}: pruned is counted {sums.pruned}, and there are {rows_of[5]}")
    return wrong + _letters(connection)


def _letters(connection: Connection) -> list[str]:
    dead_jobs = connection.scalar(select(func.count()).where(job.c.state == number(3)))
    pending = connection.scalar(select(func.count()).where(dead.c.status == "pending", dead.c.job_id.is_not(None)))
    live = job.c.state.in_((0, 1)) & job.c.dead_id.is_not(None)
    replays = connection.scalar(select(func.count()).where(live))
    replaying = connection.scalar(select(func.count()).where(dead.c.status == "replaying"))
    wrong = []
    if dead_jobs != pending:
        jobs, letters = (
            pluralise(dead_jobs or 0, "job is", "jobs are"),
            pluralise(pending or 0, "dead letter is", "dead letters are"),
        )
        wrong.append(f"{jobs} dead, but {letters} pending")
    if replays != replaying:
        again = pluralise(replays or 0, "replay is", "replays are")
        letters = pluralise(replaying or 0, "dead letter is", "dead letters are")
        wrong.append(f"{again} in progress, but {letters} replaying")
    return wrong
