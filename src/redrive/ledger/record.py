"""What goes into the ledger and comes out of it. Tuples: a batch of them is made of rows without a loop of ours.

All are immutable: threads, event loops and forked children may share them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from operator import itemgetter
from secrets import randbits
from typing import Any, NamedTuple

from .moment import moment
from .state import STATES, Shown, State, Status, shown


class NewJob(NamedTuple):
    """A job to be submitted."""

    kind: str
    key: str
    payload: bytes = b""
    priority: int = 0
    """From -2, the first, to 2, the last."""
    delay: float = 0.0
    """Seconds from now, on the database's clock, until it is due."""
    due: datetime | None = None
    """The moment it is due, instead of a delay."""
    max_attempts: int | None = None
    """The last attempt of a worker that dies is measured against this."""
    keep: float | None = None
    """Seconds for which the key stays done after the job's end; None: for ever."""
    deadline: datetime | None = None
    ids: Mapping[str, str] | None = None
    """Correlation ids: they travel with the job. None: those around the caller, see `correlate`."""
    headers: Mapping[str, str] | None = None
    request_hash: bytes | None = None
    version: int = 1
    """Of the payload's envelope."""


class Submitted(NamedTuple):
    """The job that a key has now."""

    id: int
    kind: str
    key: str
    state: State
    created: bool
    """False: the key was known already; this is the job that it has."""
    request_hash: bytes | None


def new_token() -> int:
    """Draw the token of a claim, which fits a signed 64-bit column.

    A fence alone does not name a lease for ever: an asynchronous failover or a restored backup hands out ids and fences again.
    A claim that the new primary never saw cannot have its token there, so (id, fence, token) names one lease of one job.
    """
    return randbits(63)


class Settlement(NamedTuple):
    """What became of an attempt. Made by the methods of its lease."""

    job_id: int
    fence: int
    kind: str
    outcome: str
    """done, again, dead or blocked."""
    replay: bool = False
    """The job is the replay of a dead letter."""
    result: bytes | None = None
    after: float = 0.0
    charged: bool = True
    reason: str | None = None
    error: str | None = None
    signature: str | None = None
    until: datetime | None = None
    token: int = 0
    """Of the lease. The last field, see `lease_name`."""


class Lease(NamedTuple):
    """The exclusive, expiring, fenced right to make the next attempt at a job."""

    job_id: int
    fence: int
    kind: str
    key: str
    attempt: int
    """Its number, from 1; 0 while nothing of the job has started."""
    crashes: int
    max_attempts: int | None
    version: int
    dead_id: int | None
    """The dead letter that this job replays."""
    due_stored: int | datetime
    deadline_stored: int | datetime | None
    ids_stored: str | Mapping[str, str] | None
    headers_stored: str | Mapping[str, str] | None
    payload: bytes
    started_stored: int | datetime | None = 0
    token: int = 0
    """Random for each claim, checked together with the fence. The last field, see `lease_name`."""

    @property
    def due(self) -> datetime:
        """When it was due."""
        found = moment(self.due_stored)
        assert found is not None
        return found

    @property
    def started(self) -> bool:
        """False: only claimed. `Ledger.start` writes that the attempt begins."""
        return self.started_stored is not None

    @property
    def deadline(self) -> datetime | None:
        """When the work is of no use any more."""
        return moment(self.deadline_stored)

    @property
    def ids(self) -> dict[str, str]:
        """Correlation ids."""
        return _mapping(self.ids_stored)

    @property
    def headers(self) -> dict[str, str]:
        """What came with the payload."""
        return _mapping(self.headers_stored)

    def done(self, result: bytes | None = None, /) -> Settlement:
        """The work is done."""
        return Settlement(self.job_id, self.fence, self.kind, "done", self.dead_id is not None, result, token=self.token)

    def again(
        self, after: float = 0.0, /, *, error: str | None = None, reason: str | None = None, free: bool = False
    ) -> Settlement:
        """Come back after so many seconds. Free: this attempt is not charged."""
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
        """Give it back untouched: the worker drains. Nothing is charged and nothing has crashed."""
        return self.again(0.0, reason="released", free=True)

    def dead(self, reason: str, /, *, error: str | None = None, signature: str | None = None) -> Settlement:
        """No use trying again: a dead letter."""
        return Settlement(
            self.job_id, self.fence, self.kind, "dead", self.dead_id is not None, reason=reason, error=error, signature=signature,
            token=self.token,
        )  # fmt: skip

    def blocked(self, reason: str, /, *, until: datetime | None = None, error: str | None = None) -> Settlement:
        """A dead letter that waits for something outside; replayed by itself when `until` has come."""
        return Settlement(
            self.job_id, self.fence, self.kind, "blocked", self.dead_id is not None, reason=reason, error=error, until=until,
            token=self.token,
        )  # fmt: skip


lease_name = itemgetter(0, 1, -1)
"""What names the lease in a `Lease` or a `Settlement`: job, fence and token. By place, since short jobs come by the hundred."""


class Turn(NamedTuple):
    """What one turn of a worker brought: new leases, and settlements that came too late and changed nothing."""

    leases: list[Lease]
    late: list[Settlement]


class Job(NamedTuple):
    """One drive of one key, as it stands in the ledger."""

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
        """As stored."""
        return STATES[self.state_stored]

    @property
    def shown(self) -> Shown:
        """As people call it."""
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
        """What came with the payload."""
        return _mapping(self.headers_stored)


class Attempt(NamedTuple):
    """An attempt that did not end well: failed, lost with its worker, or returned uncharged."""

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
    """Work that a person has to look at."""

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
        """What came with the payload."""
        return _mapping(self.headers_stored)


class Tally(NamedTuple):
    """How many jobs of a kind there are, by where they are; `late` counts settlements that were refused."""

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
        """Nothing is lost and nothing is counted twice."""
        return self.submitted == self.ready + self.leased + self.done + self.dead + self.dropped + self.pruned


class Entry(NamedTuple):
    """What a person or an automation decided, one link of the audit's chain."""

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
