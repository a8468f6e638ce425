"""Signals of jobs in the ledger: sent once by name, and taken by the job that waits for them.

A signal is sent in the caller's transaction, which may stay open. Sending must not lock the job
row, because an open transaction would block the renewal of its lease. Sender and waiter lock the
same row of `redrive_signal`, so the second always sees the first. A job that starts to wait adds
the row without a signal, and locks it until the wait is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    LargeBinary,
    Text,
    bindparam,
    cast,
    func,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from ..db.clock import now_micros
from ..db.compiled import Runner, compile_postgres, compile_sqlite, sql_int, sql_text
from ..db.job_tables import signal, step
from ..db.session import on_sqlite
from ..db.tables import CHANNEL, CURRENT, job
from ..model import CANCELLED, DEAD, DONE, DROPPED, PRUNED, READY, STATES
from ..validation import check_name, check_payload


class SignalledJob(NamedTuple):
    """The job that a signal is for. Immutable.

    Attributes:
        id: Id of the job.
        kind: Job type.
        state: Stored state, as a number.
        waits_for: Name of the signal that it waits for.
    """

    id: int
    kind: str
    state: int
    waits_for: str | None


class Signal(NamedTuple):
    """A signal that was sent to a job. Immutable."""

    name: str
    payload: bytes | None
    created_at: datetime


# --- Sending, also in a caller's transaction

_job_columns = select(job.c.id, job.c.kind, job.c.state, job.c.waits_for)
_by_key = _job_columns.where(
    job.c.kind == bindparam("of_kind"), job.c.key == bindparam("of_key"), CURRENT
)
_by_id = _job_columns.where(job.c.id == bindparam("of_id"))
_dead = (
    select(job.c.id)
    .where(job.c.id == bindparam("of_id"), job.c.state == sql_int(DEAD), CURRENT)
    .with_for_update()
)
_columns = (("of_id", BigInteger), ("named", Text), ("content", LargeBinary))


def _store(is_sqlite: bool) -> Any:
    """Return the statement that stores a signal, unless it was sent before."""
    values = {
        name: cast(bindparam(parameter, type_=type_()), type_())
        for name, (parameter, type_) in zip(("job_id", "name", "payload"), _columns, strict=True)
    }
    now = bindparam("now", type_=BigInteger()) if is_sqlite else func.now()
    insert = sqlite_insert if is_sqlite else postgres_insert
    new = insert(signal).values(**values, created_at=now).inline()  # without RETURNING
    return new.on_conflict_do_update(
        index_elements=[signal.c.job_id, signal.c.name],
        set_={"payload": new.excluded.payload, "created_at": new.excluded.created_at},
        where=signal.c.created_at.is_(None),
    )


def _wake(is_sqlite: bool) -> Any:
    """Return the statement that makes a waiting job due."""
    now = bindparam("now", type_=BigInteger()) if is_sqlite else func.now()
    # A job may wait for several signals, and sleep, at once.
    waiting = select(step.c.job_id).where(
        step.c.job_id == bindparam("of_id"),
        step.c.act == sql_text("wait"),
        step.c.name == bindparam("named"),
        step.c.ended_at.is_(None),
    )
    return (
        update(job)
        .values(due_at=now, waits_for=null())
        .where(job.c.id == bindparam("of_id"), job.c.state == sql_int(READY))
        .where(job.c.waits_for.is_not(None), job.c.id.in_(waiting))
    )


class SignalStatements:
    """The statements of one database, as text for a caller's transaction."""

    def __init__(self, *, is_sqlite: bool) -> None:
        self._is_sqlite = is_sqlite
        if is_sqlite:
            self._by_key = compile_sqlite(_by_key, "of_kind", "of_key")
            self._by_id = compile_sqlite(_by_id, "of_id")
            self._dead = compile_sqlite(_dead, "of_id")
            self._store = compile_sqlite(_store(True), "of_id", "named", "content", "now")
            self._wake = compile_sqlite(_wake(True), "now", "of_id", "of_id", "named")
            return
        self._by_key, self._by_id = compile_postgres(_by_key), compile_postgres(_by_id)
        self._dead = compile_postgres(_dead)
        self._store, self._wake = compile_postgres(_store(False)), compile_postgres(_wake(False))

    def find(self, run: Runner, kinds: Sequence[str], key: str, /) -> list[SignalledJob]:
        """Return the current jobs of a key, of these job types."""
        rows = (
            self._run(run, self._by_key, {"of_kind": kind, "of_key": key}).fetchone()
            for kind in kinds
        )
        return [SignalledJob._make(row) for row in rows if row is not None]

    def get(self, run: Runner, job_id: int, /) -> SignalledJob | None:
        """Return a job by its id."""
        row = self._run(run, self._by_id, {"of_id": job_id}).fetchone()
        return None if row is None else SignalledJob._make(row)

    def lock_dead(self, run: Runner, job_id: int, /) -> bool:
        """Lock a dead job against a replay until the transaction ends. False: it was replayed."""
        return self._run(run, self._dead, {"of_id": job_id}).fetchone() is not None

    def send(self, run: Runner, job_id: int, name: str, payload: bytes | None, /) -> bool:
        """Store a signal, and make the job due if it waits for it. False: it was sent before."""
        now = {"now": now_micros()} if self._is_sqlite else {}
        new = {"of_id": job_id, "named": name, "content": payload} | now
        if self._run(run, self._store, new).rowcount != 1:
            return False
        place = {"of_id": job_id, "named": name}
        wake = (*now.values(), job_id, job_id, name) if self._is_sqlite else place
        if run.execute(self._wake, wake).rowcount == 1 and not self._is_sqlite:
            run.execute(f"SELECT pg_notify('{CHANNEL}', '')")
        return True

    def _run(self, run: Runner, statement: str, parameters: dict[str, Any]) -> Any:
        return run.execute(statement, tuple(parameters.values()) if self._is_sqlite else parameters)


@cache
def signal_statements(is_sqlite: bool, /) -> SignalStatements:
    """Return the statements of a database, compiled once."""
    return SignalStatements(is_sqlite=is_sqlite)


# --- Waiting

_sent = signal.c.created_at.is_not(None)
_of_job = signal.c.job_id == bindparam("of_job")
_payload = select(signal.c.payload).where(_of_job, signal.c.name == bindparam("of_name"), _sent)
_signals = select(signal.c.name, signal.c.payload, signal.c.created_at).where(_of_job, _sent)


def signals_of(connection: Connection, job_id: int, /) -> list[Signal]:
    """Return the signals that were sent to a job."""
    rows = connection.execute(_signals.order_by(signal.c.created_at), {"of_job": job_id})
    return [Signal._make(row) for row in rows]


def find_signal(connection: Connection, job_id: int, name: str, /) -> tuple[bytes | None] | None:
    """Return the payload of a signal in a tuple, or None if it was not sent."""
    row = connection.execute(_payload, {"of_job": job_id, "of_name": name}).first()
    return None if row is None else (row.payload,)


def await_signal(connection: Connection, job_id: int, name: str, /) -> bool:
    """Begin to wait for a signal, in the transaction that suspends the job.

    It waits for an open transaction that sends the signal.

    Returns:
        True if the signal is there already.
    """
    parameters = {"new_job": job_id, "new_name": name}
    created = connection.execute(_expect(on_sqlite(connection)), parameters).scalar_one()
    return created is not None


@cache
def _expect(is_sqlite: bool) -> Any:
    values: dict[str, Any] = {"job_id": bindparam("new_job"), "name": bindparam("new_name")}
    new = (sqlite_insert if is_sqlite else postgres_insert)(signal).values(values)
    # A row that is there is locked, and written anew: a sender in an older snapshot (REPEATABLE
    # READ) then gets an error, instead of missing the waiting job.
    return new.on_conflict_do_update(
        index_elements=[signal.c.job_id, signal.c.name], set_={"payload": signal.c.payload}
    ).returning(signal.c.created_at)


# --- Sending by key or id

MAX_SIGNAL_NAME_BYTES = 200
MAX_ROUNDS = 3
"""How often the job of a key is looked up, if replays take its place meanwhile."""
ENDED = (DONE, DROPPED, PRUNED, CANCELLED)


@dataclass(frozen=True, slots=True)
class SentSignal:
    """The result of a signal. Immutable.

    Attributes:
        job_id: Id of the job.
        stored: False if this signal was sent to the job before. The first one counts.
        is_dead: True if the job is a dead letter. A replay of it gets the signal.
    """

    job_id: str
    stored: bool
    is_dead: bool


def check_signal(name: object, payload: bytes | None, max_payload: int, /) -> None:
    """Raise TypeError or ValueError if a signal cannot be stored."""
    check_name("the name of a signal", name, MAX_SIGNAL_NAME_BYTES)
    if payload is not None:
        check_payload(f"signal {name!r}: payload", payload, max_payload)


def send_to_key(
    run: Runner,
    kinds: Sequence[str],
    key: str,
    name: str,
    payload: bytes | None,
    /,
    *,
    sqlite: bool,
) -> SentSignal:
    """Send a signal to the current job of a key, in the open transaction.

    Raises:
        LookupError: No such job, several, or it has ended. Nothing was changed.
    """
    statements = signal_statements(sqlite)
    for _round in range(MAX_ROUNDS):
        jobs = statements.find(run, kinds, key)
        if not jobs:
            raise LookupError(f"signal {name!r}: no job has the key {key!r}; nothing was changed")
        if len(jobs) > 1:
            raise LookupError(
                f"signal {name!r}: {len(jobs)} job types have the key {key!r} "
                f"({', '.join(sorted(job.kind for job in jobs))}); pass kind=; nothing was changed"
            )
        sent = _send(run, jobs[0], name, payload, sqlite=sqlite)
        if sent is not None:
            return sent
    raise LookupError(f"signal {name!r}: the job of {key!r} is being replayed; send it again")


def send_to_job(
    run: Runner, job_id: int, name: str, payload: bytes | None, /, *, sqlite: bool
) -> SentSignal:
    """Send a signal to a job, in the open transaction.

    Raises:
        LookupError: There is no such job, or it has ended. Nothing was changed.
    """
    job = signal_statements(sqlite).get(run, job_id)
    if job is None:
        raise LookupError(f"signal {name!r}: job {job_id} not found; nothing was changed")
    sent = _send(run, job, name, payload, sqlite=sqlite)
    if sent is None:
        raise LookupError(
            f"signal {name!r}: job {job_id} was replayed; send it to its replay; "
            "nothing was changed"
        )
    return sent


def _send(
    run: Runner, job: SignalledJob, name: str, payload: bytes | None, *, sqlite: bool
) -> SentSignal | None:
    """Send a signal to this job. None: a replay has just taken its place."""
    statements = signal_statements(sqlite)
    if job.state in ENDED:
        raise LookupError(
            f"signal {name!r}: job {job.id} ({job.kind}) is {STATES[job.state]} and waits for "
            "nothing; nothing was changed"
        )
    is_dead = job.state == DEAD
    if is_dead and not statements.lock_dead(run, job.id):
        return None
    stored = statements.send(run, job.id, name, payload)
    return SentSignal(str(job.id), stored, is_dead)
