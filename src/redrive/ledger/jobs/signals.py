"""Send signals to jobs, by job key or by id, also in a caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..db.compiled import Runner
from ..model import CANCELLED, DEAD, DONE, DROPPED, PRUNED, STATES
from ..store.signals import SignalledJob, signal_statements
from ..validation import check_name, check_payload

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
