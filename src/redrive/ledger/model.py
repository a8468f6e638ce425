"""The records of the ledger: jobs, leases, settlements, attempts, counts, audit entries.

Free of SQLAlchemy, so that every part of Redrive can import it. All records are immutable: threads,
event loops and forked children may share them. Most are tuples, so that `_make` builds them from
rows without a loop in Python.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias

from .timestamps import from_db

READY, LEASED, DONE, DEAD, DROPPED, PRUNED, CANCELLED, HELD = range(8)
"""Stored states of a job. Dropped: an operator discarded it, or a replay replaced it. Pruned: only
its job key is still stored. Held: an earlier job of its sequence has not ended."""

State: TypeAlias = Literal[
    "ready", "leased", "done", "dead", "dropped", "pruned", "cancelled", "held"
]
STATES: tuple[State, ...] = (
    *("ready", "leased", "done", "dead", "dropped", "pruned", "cancelled", "held"),
)

DisplayState: TypeAlias = Literal[
    "idle",
    "queued",
    "running",
    "retry_wait",
    "waiting",
    "blocked",
    "dlq",
    "replaying",
    "done",
    "discarded",
    "cancelled",
]
"""State of a job as the console and the CLI show it."""

PRIORITIES = (-2, -1, 0, 1, 2)
"""Lower runs first. Few and fixed: a claim queries the index for each by equality, so that it never
reads through jobs of one priority that are not due yet."""
QUARANTINE = 9
"""Priority of a job that was running when its worker died. It is claimed alone, and last."""

FAILED, LOST, CANCELLED_ATTEMPT = "failed", "lost", "cancelled"
"""Outcomes of an attempt that has a row. Cancelled: it ended after its job was cancelled."""


def display_state(
    state: int | None,
    *,
    attempts: int = 0,
    started: bool = False,
    replay: bool = False,
    blocked: bool = False,
    waits: bool = False,
) -> DisplayState:
    """Return the displayed state of a job.

    Args:
        state: Stored state. None: the job does not exist.
        attempts: Number of attempts so far.
        started: Whether the attempt of the current lease has started.
        replay: Whether the job replays a dead letter.
        blocked: Whether its dead letter waits for something outside.
        waits: Whether the job sleeps, or waits for a signal.
    """
    if state is None:
        return "idle"
    if state in (READY, HELD) or (state == LEASED and not started):
        if waits:
            return "waiting"
        if attempts:
            return "retry_wait"
        return "replaying" if replay else "queued"
    if state == LEASED:
        return "running"
    if state == DEAD:
        return "blocked" if blocked else "dlq"
    if state == CANCELLED:
        return "cancelled"
    return "discarded" if state == DROPPED else "done"


class NewJob(NamedTuple):
    """A job to submit. Immutable.

    Args:
        kind: Job type.
        key: Job key.
        payload: Stored bytes.
        priority: From -2 (first) to 2 (last).
        delay: Seconds until the job is due, on the database's clock.
        due: Time at which the job is due, instead of a delay.
        max_attempts: Attempts after which a job whose worker died becomes a dead letter.
        keep: Seconds for which the job key stays done after the job's end. None: for ever.
        deadline: Time after which the job is not started any more.
        ids: Correlation ids that travel with the job. None: those of the caller, see `correlate`.
        headers: Text by name, stored with the payload.
        request_hash: Digest of the request, to detect another request under the same key.
        version: Version of the payload's envelope.
        tags: Values by which the job is found, by name.
        keeps_cancelled: If the key has a cancelled job, keep that one instead of a new job. For
            submissions that are repeated automatically, such as the runs of a schedule.
        tenant: Tenant that shares the job type fairly with others.
        sequence: Jobs of one type and sequence run one after another.
    """

    kind: str
    key: str
    payload: bytes = b""
    priority: int = 0
    delay: float = 0.0
    due: datetime | None = None
    max_attempts: int | None = None
    keep: float | None = None
    deadline: datetime | None = None
    ids: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    request_hash: bytes | None = None
    version: int = 1
    tags: Mapping[str, str] | None = None
    keeps_cancelled: bool = False
    tenant: str | None = None
    sequence: str | None = None


class Submitted(NamedTuple):
    """The job that a job key has after a submission. Immutable.

    Attributes:
        id: Id of the job.
        kind: Job type.
        key: Job key.
        state: Stored state.
        created: False if the key existed: this is the job that it has.
        request_hash: Digest of the request of that job.
        is_stopping: That job is running and was asked to stop.
    """

    id: int
    kind: str
    key: str
    state: State
    created: bool
    request_hash: bytes | None
    is_stopping: bool = False


_tokens = Random()
"""Seeded by the system. `secrets` would release the GIL for each token and delay a busy worker."""
os.register_at_fork(after_in_child=_tokens.seed)


def new_token() -> int:
    """Draw the token of a claim.

    The fence alone does not identify a lease: after an asynchronous failover or a restored backup,
    ids and fences are assigned again. A new primary cannot have the token of a claim that it never
    saw, so (id, fence, token) identifies one lease of one job.
    """
    return _tokens.getrandbits(63)  # fits a signed 64-bit column


class Settlement(NamedTuple):
    """The result of an attempt. Immutable. Made by the methods of its `Lease`.

    Attributes:
        job_id: Id of the job.
        fence: Fencing number of the lease.
        kind: Job type.
        outcome: `"done"`, `"again"`, `"dead"`, `"blocked"` or `"cancelled"`.
        replay: True if the job is the replay of a dead letter.
        result: Stored result.
        after: Seconds until the next attempt.
        charged: False if this does not count as an attempt.
        reason: Why.
        error: The error.
        signature: Signature of the error.
        until: When a blocked job is replayed.
        waits_for: Name of the signal that the job waits for. An empty text: it sleeps.
        sequence: Sequence of the job, whose next job its end releases.
        token: Token of the lease. The last field, see `lease_key`.
    """

    job_id: int
    fence: int
    kind: str
    outcome: str
    replay: bool = False
    result: bytes | None = None
    after: float = 0.0
    charged: bool = True
    reason: str | None = None
    error: str | None = None
    signature: str | None = None
    until: datetime | None = None
    waits_for: str | None = None
    sequence: str | None = None
    token: int = 0


class Lease(NamedTuple):
    """The exclusive, expiring right to make the next attempt at a job. Immutable.

    Attributes:
        job_id: Id of the job.
        fence: Fencing number. A later lease has a higher one.
        kind: Job type.
        key: Job key.
        attempt: Number of the attempt, from 1. 0 if nothing of the job has started.
        crashes: Number of workers that died while they ran this job.
        max_attempts: Maximum number of attempts.
        version: Version of the payload's envelope.
        dead_id: The dead letter that this job replays.
        due_stored: When the job was due, as stored. Use `due`.
        deadline_stored: Deadline, as stored. Use `deadline`.
        ids_stored: Correlation ids, as stored. Use `ids`.
        headers_stored: Headers, as stored. Use `headers`.
        payload: Stored bytes.
        started_stored: When the attempt started, as stored. Use `started`.
        sequence: Sequence of the job.
        token: Random for each claim, checked together with the fence. The last field, see
            `lease_key`.
    """

    job_id: int
    fence: int
    kind: str
    key: str
    attempt: int
    crashes: int
    max_attempts: int | None
    version: int
    dead_id: int | None
    due_stored: int | datetime
    deadline_stored: int | datetime | None
    ids_stored: str | Mapping[str, str] | None
    headers_stored: str | Mapping[str, str] | None
    payload: bytes
    started_stored: int | datetime | None = 0
    sequence: str | None = None
    token: int = 0

    @property
    def due(self) -> datetime:
        """When the job was due."""
        due = from_db(self.due_stored)
        assert due is not None
        return due

    @property
    def started(self) -> bool:
        """False if the job is only claimed. `Ledger.start` writes that the attempt starts."""
        return self.started_stored is not None

    @property
    def deadline(self) -> datetime | None:
        """Time after which the job is not started any more."""
        return from_db(self.deadline_stored)

    @property
    def ids(self) -> dict[str, str]:
        """Correlation ids."""
        return stored_mapping(self.ids_stored)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the payload."""
        return stored_mapping(self.headers_stored)

    def done(self, result: bytes | None = None, /) -> Settlement:
        """Make the settlement of a job that is done.

        Args:
            result: Result to store.
        """
        is_replay, sequence = self.dead_id is not None, self.sequence
        values = (self.job_id, self.fence, self.kind, "done", is_replay, result)
        return Settlement(*values, sequence=sequence, token=self.token)

    def again(
        self,
        after: float = 0.0,
        /,
        *,
        error: str | None = None,
        reason: str | None = None,
        free: bool = False,
    ) -> Settlement:
        """Make the settlement of a job that is retried.

        Args:
            after: Seconds until the next attempt.
            error: The error.
            reason: Why.
            free: If True, this does not count as an attempt.
        """
        return self._settlement("again", after=after, charged=not free, reason=reason, error=error)

    def _settlement(self, outcome: str, **fields: Any) -> Settlement:
        values = (self.job_id, self.fence, self.kind, outcome, self.dead_id is not None)
        return Settlement(*values, sequence=self.sequence, token=self.token, **fields)

    def release(self) -> Settlement:
        """Make the settlement of a job that goes back to the queue, without an attempt."""
        return self.again(0.0, reason="released", free=True)

    def suspended(self, after: float, /, *, waits_for: str | None) -> Settlement:
        """Make the settlement of a job that sleeps or waits. It does not count as an attempt.

        Args:
            after: Seconds until it continues at the latest.
            waits_for: Name of the signal. An empty text: it sleeps. None: the signal is there.
        """
        return self._settlement("again", after=after, charged=False, waits_for=waits_for)

    def dead(
        self, reason: str, /, *, error: str | None = None, signature: str | None = None
    ) -> Settlement:
        """Make the settlement of a job that becomes a dead letter.

        Args:
            reason: Why.
            error: The error.
            signature: Signature of the error.
        """
        return self._settlement("dead", reason=reason, error=error, signature=signature)

    def blocked(
        self, reason: str, /, *, until: datetime | None = None, error: str | None = None
    ) -> Settlement:
        """Make the settlement of a dead letter that is replayed when `until` has passed.

        Args:
            reason: Why.
            until: When it is replayed. None: by an operator.
            error: The error.
        """
        return self._settlement("blocked", reason=reason, error=error, until=until)

    def cancelled(self, *, error: str | None = None) -> Settlement:
        """Make the settlement of a job that was cancelled while it ran.

        Args:
            error: The error that ended the attempt, if any.
        """
        return self._settlement("cancelled", reason="cancelled", error=error)


lease_key = itemgetter(0, 1, -1)
"""Job id, fence and token of a `Lease` or a `Settlement`, by position because workers call it
often."""


class SettleResult(NamedTuple):
    """What became of settlements. Immutable.

    Attributes:
        late: Settlements that came too late and changed nothing.
        cancelled: Settlements whose jobs are cancelled.
    """

    late: list[Settlement]
    cancelled: Sequence[Settlement] = ()


class Turn(NamedTuple):
    """The result of `Ledger.turn`. Immutable.

    Attributes:
        leases: New leases.
        late: Settlements that came too late and changed nothing.
        started: Leases whose attempts were started. Leases that are missing here are lost.
        cancelled: Settlements whose jobs are cancelled.
    """

    leases: list[Lease]
    late: list[Settlement]
    started: Sequence[Lease] = ()
    cancelled: Sequence[Settlement] = ()


class Job(NamedTuple):
    """A job as the ledger stores it. Immutable.

    Attributes:
        id: Id of the job.
        kind: Job type.
        key: Job key.
        state_stored: State, as stored. Use `state`.
        current: False if a replay took the place of this job.
        priority: From -2 (first) to 2 (last).
        fence: Fencing number of the last lease.
        attempts: Number of attempts.
        crashes: Number of workers that died while they ran it.
        max_attempts: Maximum number of attempts.
        created_at: When it was submitted.
        due_at: When it is due.
        started_at: When the current attempt started.
        ended_at: When it ended.
        lease_until: When the lease expires.
        deadline: Time after which it is not started any more.
        worker: Worker that holds the lease.
        reason: Why the last attempt ended as it did.
        error: Last error.
        replay_of: The job that it replays.
        dead_id: The dead letter that it replays.
        version: Version of the payload's envelope.
        ids_stored: Correlation ids, as stored. Use `ids`.
        headers_stored: Headers, as stored. Use `headers`.
        request_hash: Digest of the request.
        payload: Stored bytes.
        result: Stored result.
        blocked: True for a dead letter in state `blocked`.
        tenant: Tenant, which shares the job type fairly with others.
        sequence: Jobs of one sequence run one after another.
        signature: Signature of the last error.
        cancel_at: When the running job was asked to stop.
        waits_for: Name of the signal that it waits for. An empty text: it sleeps.
    """

    id: int
    kind: str
    key: str
    state_stored: int
    current: bool
    priority: int
    fence: int
    attempts: int
    crashes: int
    max_attempts: int | None
    created_at: datetime
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    lease_until: datetime | None
    deadline: datetime | None
    worker: str | None
    reason: str | None
    error: str | None
    replay_of: int | None
    dead_id: int | None
    version: int
    ids_stored: str | None
    headers_stored: str | None
    request_hash: bytes | None
    payload: bytes
    result: bytes | None
    blocked: bool | None
    tenant: str | None = None
    sequence: str | None = None
    signature: str | None = None
    cancel_at: datetime | None = None
    waits_for: str | None = None

    @property
    def state(self) -> State:
        """Stored state."""
        return STATES[self.state_stored]

    @property
    def shown(self) -> DisplayState:
        """State as the console and the CLI show it."""
        return display_state(
            self.state_stored,
            # An attempt that does not count leaves a reason: the job was tried all the same.
            attempts=self.attempts or int(self.reason is not None),
            started=self.started_at is not None,
            replay=self.dead_id is not None,
            blocked=bool(self.blocked),
            waits=self.waits_for is not None,
        )

    @property
    def ids(self) -> dict[str, str]:
        """Correlation ids."""
        return stored_mapping(self.ids_stored)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the payload."""
        return stored_mapping(self.headers_stored)


class Attempt(NamedTuple):
    """An attempt that failed, was lost with its worker, or does not count. Immutable.

    Attributes:
        job_id: Id of the job.
        fence: Fencing number of its lease.
        number: Number of the attempt, from 1.
        outcome: How it ended.
        worker: Name of the worker.
        reason: Why.
        error: The error.
        started_at: When it started.
        ended_at: When it ended.
    """

    job_id: int
    fence: int
    number: int
    outcome: str
    worker: str | None
    reason: str | None
    error: str | None
    started_at: datetime | None
    ended_at: datetime


class Tally(NamedTuple):
    """Number of jobs of a job type, by state. Immutable.

    Attributes:
        submitted: All that were submitted, including replays.
        ready: Queued or scheduled.
        leased: Held by a worker.
        done: Done.
        dead: Dead letters without a decision.
        dropped: Discarded.
        pruned: Done and pruned.
        late: Settlements that were rejected because they came too late.
        cancelled: Cancelled.
    """

    submitted: int = 0
    ready: int = 0
    leased: int = 0
    done: int = 0
    dead: int = 0
    dropped: int = 0
    pruned: int = 0
    late: int = 0
    cancelled: int = 0

    @property
    def balanced(self) -> bool:
        """True if `submitted` equals the sum of the states: no job is lost or counted twice."""
        alive = self.ready + self.leased
        ended = self.done + self.dead + self.dropped + self.pruned + self.cancelled
        return self.submitted == alive + ended


class Entry(NamedTuple):
    """An entry of the audit log. Immutable.

    Attributes:
        number: Number of the entry.
        at: When.
        actor: Who decided.
        action: What was done.
        because: Why.
        what: Details.
        previous: Hash of the entry before.
        hash: Hash of this entry.
    """

    number: int
    at: str
    actor: str
    action: str
    because: str
    what: dict[str, Any]
    previous: str
    hash: str


def stored_mapping(stored: str | Mapping[str, str] | None, /) -> dict[str, str]:
    """Return headers or correlation ids, as a mapping."""
    if not stored:
        return {}
    # The stores pass a mapping for events that they have just stored. It is never changed.
    return json.loads(stored) if isinstance(stored, str) else stored  # type: ignore[return-value]
