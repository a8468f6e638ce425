"""Steps, progress and checkpoints of jobs in the ledger.

An attempt reads its finished steps once. Steps of several jobs that end at the same time are
written together. A job that has progress or a checkpoint has one row for both.

A write checks the lease in the same statement, so that an attempt whose lease is lost writes
nothing. Jobs without steps have no rows here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import (
    BigInteger,
    Connection,
    DateTime,
    Integer,
    Select,
    Text,
    bindparam,
    case,
    cast,
    delete,
    func,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from ...errors import LeaseLost
from ..db.compiled import (
    bytes_array,
    compile_postgres,
    int_array,
    is_one_of,
    sql_int,
    text_array,
    timestamp_array,
    unnest,
)
from ..db.job_tables import progress, signal, step
from ..db.session import Session, on_sqlite
from ..db.tables import job
from ..model import LEASED, Lease

StepAct: TypeAlias = Literal["step", "sleep", "wait"]
MAX_STEPS = 10_000
"""Steps, sleeps and waits of one job."""
MAX_LOADED_BYTES = 4096
"""Longer results are read when their step is reached, not with all others."""
TIMED_OUT = "timeout"
"""Error of a wait whose signal did not arrive in time."""


class Step(NamedTuple):
    """A step, sleep or wait of a job. Immutable.

    Attributes:
        act: What it is.
        name: Its name in the job.
        arguments: Digest of its arguments. None: they cannot be compared.
        result: Stored result. None if there is none, or if it is long: see `result_bytes`.
        result_bytes: Length of the result.
        error: Error of its last attempt.
        attempts: How often its function was called.
        wake_at: When a sleep or a wait ends.
        started_at: When it was last started.
        ended_at: When it was finished. None: it was not.
    """

    act: StepAct
    name: str
    arguments: bytes | None = None
    result: bytes | None = None
    result_bytes: int | None = None
    error: str | None = None
    attempts: int = 0
    wake_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the result is here: it is not long, or there is none."""
        return self.result is not None or self.result_bytes is None


_short_result = case((func.length(step.c.result) <= MAX_LOADED_BYTES, step.c.result))
_steps = (
    select(
        *(step.c.act, step.c.name, step.c.arguments, _short_result, func.length(step.c.result)),
        *(step.c.error, step.c.attempts, step.c.wake_at, step.c.started_at, step.c.ended_at),
    )
    .where(step.c.job_id == bindparam("of_job"))
    .order_by(step.c.started_at, step.c.act, step.c.name)
    .limit(MAX_STEPS)
)
_result = select(step.c.result).where(
    step.c.job_id == bindparam("of_job"),
    step.c.act == bindparam("of_act"),
    step.c.name == bindparam("of_name"),
)


def steps_of(connection: Connection, job_id: int, /) -> list[Step]:
    """Return the steps of a job in the order in which they were started."""
    return [Step._make(row) for row in connection.execute(_steps, {"of_job": job_id})]


def result_of(connection: Connection, job_id: int, act: str, name: str, /) -> bytes | None:
    """Return the stored result of a step."""
    parameters = {"of_job": job_id, "of_act": act, "of_name": name}
    result: bytes | None = connection.execute(_result, parameters).scalar()
    return result


def write_step(session: Session, lease: Lease, written: Step, /) -> None:
    """Store a step in a transaction of its own.

    Raises:
        LeaseLost: The lease is no longer the caller's. Nothing was written.
    """
    with session.single_statement("step") as connection:
        if session.sqlite:
            write_step_in(connection, lease, written)
        # Each step of a job waits for this statement, so it goes to the driver without Core.
        elif session.run.execute(_write_on_postgres(), _values(lease, written)).rowcount != 1:
            raise _lease_lost(lease, written)


def write_steps(session: Session, steps: Sequence[tuple[Lease, Step]], /) -> list[bool]:
    """Store steps of many jobs in one transaction.

    Returns:
        Whether each step was stored. If not, its lease is lost, or another transaction has locked
        its job: then `write_step` waits for it.
    """
    with session.single_statement("step") as connection:
        if session.sqlite:
            statement = _write(True)
            return [
                connection.execute(statement, _values(lease, written)).rowcount == 1
                for lease, written in steps
            ]
        if len(steps) == 1:
            return [session.run.execute(_write_on_postgres(), _values(*steps[0])).rowcount == 1]
        stored = session.run.execute(_write_together(), _arrays(steps)).fetchall()
    keys = set(map(tuple, stored))
    return [(lease.job_id, written.act, written.name) in keys for lease, written in steps]


def write_step_in(connection: Connection, lease: Lease, written: Step, /) -> None:
    """Store a step in the open transaction, which also settles the job.

    Raises:
        LeaseLost: The lease is no longer the caller's. Nothing was written.
    """
    # Not locked: the transaction settles the job, or changes nothing. It may stay open for long,
    # and the worker renews its leases meanwhile.
    statement = _write(on_sqlite(connection), is_locked=False)
    if connection.execute(statement, _values(lease, written)).rowcount != 1:
        raise _lease_lost(lease, written)


def _values(lease: Lease, written: Step) -> dict[str, Any]:
    values = {f"new_{name}": getattr(written, name) for name in _WRITTEN}
    return values | lease_values(lease)


def _arrays(steps: Sequence[tuple[Lease, Step]]) -> dict[str, str]:
    leases = [lease for lease, _ in steps]
    written = [step for _, step in steps]
    return {
        "new_id": int_array([lease.job_id for lease in leases]),
        "new_fence": int_array([lease.fence for lease in leases]),
        "new_token": int_array([lease.token for lease in leases]),
        "new_act": text_array([each.act for each in written]),
        "new_name": text_array([each.name for each in written]),
        "new_arguments": bytes_array([each.arguments for each in written]),
        "new_result": bytes_array([each.result for each in written]),
        "new_error": text_array([each.error for each in written]),
        "new_attempts": int_array([each.attempts for each in written]),
        "new_wake_at": timestamp_array([each.wake_at for each in written]),
        "new_started_at": timestamp_array([each.started_at for each in written]),
        "new_ended_at": timestamp_array([each.ended_at for each in written]),
    }


def _lease_lost(lease: Lease, written: Step) -> LeaseLost:
    return LeaseLost(
        f"job {lease.job_id} ({lease.kind}, fence {lease.fence}): its lease is no longer this "
        f"worker's; step {written.name!r} was not stored"
    )


_WRITTEN = (
    *("act", "name", "arguments", "result", "error", "attempts"),
    *("wake_at", "started_at", "ended_at"),
)


@cache
def _write(is_sqlite: bool, *, is_locked: bool = True) -> Any:
    """Return the statement that stores a step if the lease is held."""
    columns = [step.c[name] for name in _WRITTEN]
    values = [
        cast(bindparam(f"new_{column.name}", type_=column.type), column.type) for column in columns
    ]
    insert = (sqlite_insert if is_sqlite else postgres_insert)(step)
    rows = held_job(*values, is_locked=is_locked)
    return _replacing(insert, rows).execution_options(preserve_rowcount=True)


def _replacing(insert: Any, rows: Select[Any]) -> Any:
    """Return the statement that stores these rows in place of earlier ones."""
    new = insert.from_select(["job_id", *_WRITTEN], rows)
    changed = [name for name in _WRITTEN if name not in ("act", "name")]
    return new.on_conflict_do_update(
        index_elements=[step.c.job_id, step.c.act, step.c.name],
        set_={name: new.excluded[name] for name in changed},
    )


@cache
def _write_on_postgres() -> str:
    """Return the same statement for psycopg."""
    return compile_postgres(_write(False))


@cache
def _write_together() -> str:
    """Return the statement that stores steps of many jobs, for psycopg.

    SKIP LOCKED: a lease that another transaction renews or takes away must not block the steps of
    other jobs, and two statements that lock several jobs could wait for each other.
    """
    types = {name: Text() if name in ("act", "name") else step.c[name].type for name in _WRITTEN}
    types |= dict.fromkeys(("wake_at", "started_at", "ended_at"), DateTime(timezone=True))
    new = unnest("new", id=BigInteger(), fence=Integer(), token=BigInteger(), **types)
    held = select(job.c.id, *(new.c[name] for name in _WRITTEN)).where(
        job.c.id == new.c.id,
        job.c.fence == new.c.fence,
        job.c.token == new.c.token,
        (job.c.state + sql_int(0)) == sql_int(LEASED),  # not by an index over the state
    )
    rows = held.with_for_update(read=True, skip_locked=True, of=job)
    stored = _replacing(postgres_insert(step), rows)
    return compile_postgres(stored.returning(step.c.job_id, step.c.act, step.c.name))


def held_job(*columns: Any, is_running: bool = True, is_locked: bool = True) -> Select[Any]:
    """Return the query of a job id and these values, if the lease is held.

    FOR SHARE: while another transaction takes the lease away, it waits and then finds no row.

    Args:
        columns: The values.
        is_running: False: the attempt may have ended, but no other one has started.
        is_locked: False: without FOR SHARE, for a transaction that settles the job.
    """
    query = select(job.c.id, *columns).where(
        job.c.id == bindparam("of_id"),
        job.c.fence == bindparam("of_fence"),
        job.c.token == bindparam("of_token"),
    )
    if is_running:
        query = query.where(job.c.state == sql_int(LEASED))
    return query.with_for_update(read=True) if is_locked else query


def lease_values(lease: Lease, /) -> dict[str, int]:
    """Return the parameters of `held_job`."""
    return {"of_id": lease.job_id, "of_fence": lease.fence, "of_token": lease.token}


# --- With their job

JOB_TABLES = (step, signal, progress)
"""Tables with rows of a job that go with it."""


def move_to_replays(connection: Connection, replays: Sequence[tuple[int, int]], /) -> None:
    """Give the steps, signals and checkpoints of dead jobs to the jobs that replay them.

    Args:
        connection: With an open transaction.
        replays: Pairs of the old and the new job.
    """
    new_jobs = dict(replays)
    # A replay waits again for a signal that did not arrive in time.
    is_late = (step.c.act == "wait", step.c.error == TIMED_OUT)
    connection.execute(delete(step).where(is_one_of(step.c.job_id, new_jobs), *is_late))
    for table in JOB_TABLES:
        owner = table.c.job_id
        owners = select(owner).where(is_one_of(owner, new_jobs)).distinct()
        moves = [
            {"old_job": old, "new_job": new_jobs[old]}
            for old in connection.execute(owners).scalars()
        ]
        if moves:
            # The fences of the new job start again.
            fresh = {"fence": 0, "part": null(), "note": null()} if table is progress else {}
            moved = update(table).where(owner == bindparam("old_job"))
            connection.execute(moved.values(job_id=bindparam("new_job"), **fresh), moves)


def delete_of_jobs(connection: Connection, job_ids: Sequence[int], /) -> None:
    """Delete the steps, signals and progress of jobs."""
    for table in JOB_TABLES:
        connection.execute(delete(table).where(table.c.job_id.in_(job_ids)))


# --- Progress and checkpoints


class StoredProgress(NamedTuple):
    """The progress and the checkpoint of a job. Immutable.

    Attributes:
        part: Finished part of the work, from 0 to 1.
        note: What the job does now.
        updated_at: When the job reported it.
        checkpoint: Stored value of the last checkpoint.
        checkpoint_at: When it was stored. None: there is none.
    """

    part: float | None
    note: str | None
    updated_at: datetime | None
    checkpoint: bytes | None
    checkpoint_at: datetime | None


class ProgressReport(NamedTuple):
    """Progress that a running job reported. Immutable."""

    lease: Lease
    part: float
    note: str | None
    at: datetime


_stored = select(*(progress.c[name] for name in StoredProgress._fields)).where(
    progress.c.job_id == bindparam("of_job")
)


def progress_of(connection: Connection, job_id: int, /) -> StoredProgress | None:
    """Return the progress and the checkpoint of a job, or None."""
    row = connection.execute(_stored, {"of_job": job_id}).first()
    return None if row is None else StoredProgress._make(row)


def write_progress(session: Session, reports: Sequence[ProgressReport], /) -> None:
    """Store the progress of running jobs. Reports of lost leases change nothing."""
    rows = [
        {"new_part": report.part, "new_note": report.note, "new_updated_at": report.at}
        | lease_values(report.lease)
        for report in reports
    ]
    with session.transaction("beat") as connection:
        connection.execute(
            _upsert_progress(on_sqlite(connection), "part", "note", "updated_at"), rows
        )


def write_checkpoint(session: Session, lease: Lease, value: bytes, now: datetime, /) -> None:
    """Store a checkpoint in a transaction of its own.

    Raises:
        LeaseLost: The lease is no longer the caller's. Nothing was written.
    """
    with session.single_statement("step") as connection:
        write_checkpoint_in(connection, lease, value, now, is_locked=True)


def write_checkpoint_in(
    connection: Connection,
    lease: Lease,
    value: bytes,
    now: datetime,
    /,
    *,
    is_locked: bool = False,
) -> None:
    """Store a checkpoint in the open transaction.

    Args:
        connection: With the transaction.
        lease: Of the attempt.
        value: The value.
        now: The time.
        is_locked: Lock the lease. False: the transaction settles the job.

    Raises:
        LeaseLost: The lease is no longer the caller's. Nothing was written.
    """
    values = {"new_checkpoint": value, "new_checkpoint_at": now} | lease_values(lease)
    names = ("checkpoint", "checkpoint_at")
    statement = _upsert_progress(on_sqlite(connection), *names, is_locked=is_locked)
    if connection.execute(statement, values).rowcount != 1:
        raise LeaseLost(
            f"job {lease.job_id} ({lease.kind}, fence {lease.fence}): its lease is no longer this "
            "worker's; the checkpoint was not stored"
        )


@cache
def _upsert_progress(is_sqlite: bool, *names: str, is_locked: bool = True) -> Any:
    """Return the statement that stores these columns if the lease is held."""
    columns = [progress.c[name] for name in names]
    values = [
        cast(bindparam(f"new_{column.name}", type_=column.type), column.type) for column in columns
    ]
    insert = (sqlite_insert if is_sqlite else postgres_insert)(progress)
    # Progress is written about a second later, when a short attempt has ended.
    is_running = "checkpoint" in names
    source = held_job(job.c.fence, *values, is_running=is_running, is_locked=is_locked)
    new = insert.from_select(["job_id", "fence", *names], source)
    return new.on_conflict_do_update(
        index_elements=[progress.c.job_id],
        set_={name: new.excluded[name] for name in ("fence", *names)},
    ).execution_options(preserve_rowcount=True)
