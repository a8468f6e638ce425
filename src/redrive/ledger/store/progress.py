"""Progress and checkpoints of jobs in the ledger: one row for a job that has any."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, cast, select
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from ...errors import LeaseLost
from ..db.job_tables import progress
from ..db.session import Session, on_sqlite
from ..db.tables import job
from ..model import Lease
from .steps import held_job, lease_values


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
        connection.execute(_write(on_sqlite(connection), "part", "note", "updated_at"), rows)


def write_checkpoint(session: Session, lease: Lease, value: bytes, now: datetime, /) -> None:
    """Store a checkpoint in a transaction of its own.

    Raises:
        LeaseLost: The lease is no longer the caller's. Nothing was written.
    """
    with session.single_statement("step") as connection:
        write_checkpoint_in(connection, lease, value, now)


def write_checkpoint_in(
    connection: Connection, lease: Lease, value: bytes, now: datetime, /
) -> None:
    """Store a checkpoint in the open transaction.

    Raises:
        LeaseLost: The lease is no longer the caller's. Nothing was written.
    """
    values = {"new_checkpoint": value, "new_checkpoint_at": now} | lease_values(lease)
    statement = _write(on_sqlite(connection), "checkpoint", "checkpoint_at")
    if connection.execute(statement, values).rowcount != 1:
        raise LeaseLost(
            f"job {lease.job_id} ({lease.kind}, fence {lease.fence}): its lease is no longer this "
            "worker's; the checkpoint was not stored"
        )


@cache
def _write(is_sqlite: bool, *names: str) -> Any:
    """Return the statement that stores these columns if the lease is held."""
    columns = [progress.c[name] for name in names]
    values = [
        cast(bindparam(f"new_{column.name}", type_=column.type), column.type) for column in columns
    ]
    insert = (sqlite_insert if is_sqlite else postgres_insert)(progress)
    # Progress is written about a second later, when a short attempt has ended.
    source = held_job(job.c.fence, *values, is_running="checkpoint" in names)
    new = insert.from_select(["job_id", "fence", *names], source)
    return new.on_conflict_do_update(
        index_elements=[progress.c.job_id],
        set_={name: new.excluded[name] for name in ("fence", *names)},
    ).execution_options(preserve_rowcount=True)
