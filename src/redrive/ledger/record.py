"""What goes into the ledger and comes out of it. Tuples: a batch of them is made of rows without a loop of ours.

All are immutable: threads, event loops and forked children may share them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple

from .db.types import moment
from .state import STATES, Shown, State, Status, shown


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


class Submitted(NamedTuple):
    """The job that a job key has after a submission. Immutable.

    Attributes:
        id: Id of the job.
        kind: Job type.
        key: Job key.
        state: Stored state.
        created: False if the key existed: this is the job that it has.
        request_hash: Digest of the request of that job.
    """

    id: int
    kind: str
    key: str
    state: State
    created: bool
    request_hash: bytes | None


_tokens = Random()
"""Seeded by the system. `secrets` would release the GIL for each token, and a busy worker waits to get it back."""
os.register_at_fork(after_in_child=_tokens.seed)


def new_token() -> int:
    """Draw the token of a claim, which fits a signed 64-bit column.

    A fence alone does not identify a lease for ever: after an asynchronous failover or a restored backup, ids and fences
    are given out again. A claim that the new primary never saw cannot have its token there, so (id, fence, token)
    identifies one lease of one job.
    """
    return _tokens.getrandbits(63)


class Settlement(NamedTuple):
    """The result of an attempt. Immutable. Made by the methods of its `Lease`.

    Attributes:
        job_id: Id of the job.
        fence: Fencing number of the lease.
        kind: Job type.
        outcome: `"done"`, `"again"`, `"dead"` or `"blocked"`.
        replay: True if the job is the replay of a dead letter.
        result: Stored result.
        after: Seconds until the next attempt.
        charged: False if this does not count as an attempt.
        reason: Why.
        error: The error.
        signature: Signature of the error.
        until: When a blocked job is replayed.
        token: Token of the lease. The last field, see `lease_name`.
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
        token: Random for each claim, checked together with the fence. The last field, see
            `lease_name`.
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
    token: int = 0

    @property
    def due(self) -> datetime:
        """When the job was due."""
        found = moment(self.due_stored)
        assert found is not None
        return found

    @property
    def started(self) -> bool:
        """False if the job is only claimed. `Ledger.start` writes that the attempt starts."""
        return self.started_stored is not None

    @property
    def deadline(self) -> datetime | None:
        """Time after which the job is not started any more."""
        return moment(self.deadline_stored)

    @property
    def ids(self) -> dict[str, str]:
        """Correlation ids."""
        return _mapping(self.ids_stored)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the payload."""
        return _mapping(self.headers_stored)

    def done(self, result: bytes | None = None, /) -> Settlement:
        """Settle the attempt as done.

        Args:
            result: Result to store.

        Returns:
            The settlement.
        """
        return Settlement(self.job_id, self.fence, self.kind, "done", self.dead_id is not None, result, token=self.token)

    def again(
        self, after: float = 0.0, /, *, error: str | None = None, reason: str | None = None, free: bool = False
    ) -> Settlement:
        """Settle the attempt so that the job is retried.

        Args:
            after: Seconds until the next attempt.
            error: The error.
            reason: Why.
            free: If True, this does not count as an attempt.

        Returns:
            The settlement.
        """
        return Settlement(
            self.job_id,
            self.fence,
            self.kind,
            "again",
            self.dead_id is not None,
            after=after,
            charged=not free,
            reason=reason,
            error=error,
            token=self.token,
        )

    def release(self) -> Settlement:
        """Return the job to the queue untouched, because the worker drains.

        This does not count as an attempt.

        Returns:
            The settlement.
        """
        return self.again(0.0, reason="released", free=True)

    def dead(self, reason: str, /, *, error: str | None = None, signature: str | None = None) -> Settlement:
        """Settle the job as a dead letter.

        Args:
            reason: Why.
            error: The error.
            signature: Signature of the error.

        Returns:
            The settlement.
        """
        return Settlement(
            self.job_id, self.fence, self.kind, "dead", self.dead_id is not None, reason=reason, error=error, signature=signature,
            token=self.token,
        )  # fmt: skip

    def blocked(self, reason: str, /, *, until: datetime | None = None, error: str | None = None) -> Settlement:
        """Settle the job as blocked: a dead letter that is replayed when `until` has passed.

        Args:
            reason: Why.
            until: When it is replayed. None: by an operator.
            error: The error.

        Returns:
            The settlement.
        """
        return Settlement(
            self.job_id, self.fence, self.kind, "blocked", self.dead_id is not None, reason=reason, error=error, until=until,
            token=self.token,
        )  # fmt: skip


lease_name = itemgetter(0, 1, -1)
"""What names the lease in a `Lease` or a `Settlement`: job, fence and token. By place, since short jobs come by the hundred."""


class Turn(NamedTuple):
    """The result of `Ledger.turn`. Immutable.

    Attributes:
        leases: New leases.
        late: Settlements that came too late and changed nothing.
        started: Leases whose attempts were started. Leases that are missing here are lost.
    """

    leases: list[Lease]
    late: list[Settlement]
    started: Sequence[Lease] = ()


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

    @property
    def state(self) -> State:
        """Stored state."""
        return STATES[self.state_stored]

    @property
    def shown(self) -> Shown:
        """State as the console and the CLI show it."""
        return shown(
            self.state_stored,
            attempts=self.attempts or int(self.reason is not None),  # given back uncharged: tried all the same
            started=self.started_at is not None,
            replay=self.dead_id is not None,
            blocked=bool(self.blocked),
        )

    @property
    def ids(self) -> dict[str, str]:
        """Correlation ids."""
        return _mapping(self.ids_stored)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the payload."""
        return _mapping(self.headers_stored)


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


class DeadLetter(NamedTuple):
    """A job that gave up and needs a decision: replay or discard. Immutable.

    Attributes:
        id: Id of the dead letter.
        kind: Job type.
        key: Job key.
        job_id: The job that died.
        replay_job_id: The job that replays it.
        status: `"pending"`, `"replaying"`, `"replayed"` or `"discarded"`.
        reason: Why the job died.
        blocked: True if it waits for something outside.
        blocked_until: When it is replayed automatically.
        error: The error.
        signature: What errors of this kind have in common.
        attempts: Number of attempts.
        replay_count: Number of replays.
        version: Version of the payload's envelope.
        payload: Stored bytes.
        headers_stored: Headers, as stored. Use `headers`.
        ids_stored: Correlation ids, as stored. Use `ids`.
        source: Source of the message.
        source_id: Id of the message in its source.
        last_attempt_at: When the last attempt ended.
        created_at: When it became a dead letter.
        updated_at: When it last changed.
    """

    id: int
    kind: str
    key: str
    job_id: int | None
    replay_job_id: int | None
    status: Status
    reason: str
    blocked: bool
    blocked_until: datetime | None
    error: str | None
    signature: str | None
    attempts: int
    replay_count: int
    version: int
    payload: bytes
    headers_stored: str | None
    ids_stored: str | None
    source: str | None
    source_id: str | None
    last_attempt_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def ids(self) -> dict[str, str]:
        """Correlation ids."""
        return _mapping(self.ids_stored)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the payload."""
        return _mapping(self.headers_stored)


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
    """

    submitted: int = 0
    ready: int = 0
    leased: int = 0
    done: int = 0
    dead: int = 0
    dropped: int = 0
    pruned: int = 0
    late: int = 0

    @property
    def balanced(self) -> bool:
        """True if `submitted` equals the sum of the states: no job is lost or counted twice."""
        return self.submitted == self.ready + self.leased + self.done + self.dead + self.dropped + self.pruned


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


def _mapping(stored: str | Mapping[str, str] | None) -> dict[str, str]:
    if not stored:
        return {}
    return json.loads(stored) if isinstance(stored, str) else stored  # type: ignore[return-value]  # never changed
