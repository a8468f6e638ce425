"""The values that the stores of partitions take and return. All are immutable, so threads may share
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import IntEnum
from typing import Any, Literal, TypeAlias

from .key import Partition
from .raw.files import Raw

Status: TypeAlias = Literal["pending", "success", "failed"]
DisplayStatus: TypeAlias = Literal["pending", "success", "refresh_failed", "failed", "terminal"]
"""A status as people see it.

`refresh_failed` is a success whose newest run was rejected. `terminal` is a failure that is not
retried.
"""
DISPLAY_STATUSES: tuple[DisplayStatus, ...] = (
    "success",
    "pending",
    "refresh_failed",
    "failed",
    "terminal",
)
"""The column `shade` stores the index. From the third on, an operator may want to look."""
LaneName: TypeAlias = Literal["fresh", "retry", "backfill"]
Kind: TypeAlias = Literal["initial", "retry", "reprocess", "revalidate", "backfill"]
RunState: TypeAlias = Literal["leased", "accepted", "rejected", "late", "lost", "returned"]
Decision: TypeAlias = Literal["accepted", "rejected"]
ReleaseCause: TypeAlias = Literal["not_ready", "rate_limited", "systemic", "stopped", "ledger"]
"""Why a lease is released without a verdict, so that the attempt does not count.

`stopped`: the worker stops. `ledger`: our own database could not be used.
"""
TerminalCause: TypeAlias = Literal["attempts", "age", "lost", "error", "manual"]
MANUAL: TerminalCause = "manual"
"""Cause of a marker that an operator set."""
DAMAGED = "damaged"
"""Reason of a rejection: raw data is gone, or differs from the written data."""


class Lane(IntEnum):
    """A queue of partitions with a share of the capacity, as its number is stored."""

    FRESH = 0
    """Partitions of a schedule."""
    RETRY = 1
    """Partitions that were rejected, or that an operator requested."""
    BACKFILL = 2
    """Partitions of a backfill."""

    @classmethod
    def of(cls, name: LaneName, /) -> Lane:
        """Return the lane of a name."""
        return cls[name.upper()]

    @property
    def label(self) -> LaneName:
        """Its name."""
        return LANE_NAMES[self]


LANE_NAMES: tuple[LaneName, ...] = ("fresh", "retry", "backfill")


def display_status(
    status: Status, last_verdict: Decision | None, /, *, is_terminal: bool
) -> DisplayStatus:
    """Return a status as people see it."""
    if status == "success":
        return "refresh_failed" if last_verdict == "rejected" else "success"
    return "terminal" if is_terminal else status


def status_when_requeued(status: Status, /) -> Status:
    """Return the status of a partition that is queued again. A readable one stays readable."""
    return "success" if status == "success" else "pending"


@dataclass(frozen=True, slots=True)
class PartitionLease:
    """The exclusive, expiring right to extract one partition in a run of its own."""

    partition_id: int
    partition: Partition
    attempt_no: int
    """Number of this run among all runs of the partition. It only grows: the fencing token."""
    run_id: str
    kind: Kind
    lane: LaneName
    attempts: int
    """Earlier verdicts that count against the policy."""
    current_run_id: str | None
    """The run that readers get until this one is accepted."""
    current_raw_id: str | None
    """The run that wrote its raw data. It differs after a revalidation."""
    raw_run_id: str | None
    """For a revalidation: the run whose raw data is validated again. Nothing is extracted."""
    sweep_id: int | None
    lost: int
    until: datetime
    uncharged: int = 0
    """Earlier runs that ended without data and do not count as attempts: outages, rate limits and
    faults of the ledger.
    """
    waited: float | None = None
    """Seconds from due to claim. None: a backfill has claimed it without a place in the queue."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision of a validator about one run. A second verdict on a run changes nothing."""

    run_id: str
    decision: Decision
    validator: str = "redrive"
    version: str = ""
    checks: Sequence[Mapping[str, Any]] = ()
    """Each with name, ok, value, limit and detail, as JSON values."""
    record_count: int | None = None
    reason: str | None = None
    """Of a rejection: a word such as `row_count`, or the class of the error that was raised."""
    message: str | None = None
    manifest: str | None = None
    """Digest of the validated manifest."""
    after: float | None = None
    """Of a rejection: minimum seconds until the next attempt, also if the backoff is shorter."""
    final: bool = False
    """Of a rejection: a retry cannot succeed, so the partition gives up at once."""
    signature: str | None = None
    """Set if the fault may be the source's. Equal for faults of one cause. Not stored."""
    shared: bool = False
    """The fault is a refused credential, a block, or one of the raw store. If several customers get
    it, it is the source's. Not stored.
    """
    charged: bool = False
    """Counts as an attempt, even in an outage: the partition has used up those that do not. Not
    stored.
    """


@dataclass(frozen=True, slots=True)
class VerdictResult:
    """The effect of a verdict."""

    run_id: str
    outcome: Literal["accepted", "rejected", "late", "repeated", "unknown", "spared"]
    """`late`: a newer run owns the partition; counted, no effect. `repeated`: it has a verdict.
    `unknown`: no such run. `spared`: the source is paused for this fault; not counted, release the
    lease.
    """
    partition: Partition | None = None
    attempt_count: int = 0
    status: Status = "pending"
    next_at: datetime | None = None
    """When it is retried. None: not without a request."""
    terminal: TerminalCause | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """A lease that is released without a verdict."""

    lease: PartitionLease
    cause: ReleaseCause
    error: str | None = None
    after: float | None = None
    """Minimum seconds until the next attempt, as the source requested. None: by the policy."""
    signature: str | None = None
    """For the cause `systemic`: equal for faults of one cause."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition: its outcomes, its queued or running work, and its markers."""

    id: int
    partition: Partition
    status: Status
    shade: DisplayStatus
    current_run_id: str | None
    current_raw_id: str | None
    current_attempt_no: int
    record_count: int | None
    attempt_count: int
    dispatch_count: int
    last_verdict: Decision | None
    verdict_at: datetime | None
    reason: str | None
    """Of the last rejection, in a word."""
    error: str | None
    updated_at: datetime
    lane: LaneName | None = None
    next_at: datetime | None = None
    """When the next attempt is due."""
    strategy: str | None = None
    """How that time was chosen."""
    run_id: str | None = None
    """The running run."""
    worker: str | None = None
    until: datetime | None = None
    """End of its lease."""
    sweep_id: int | None = None
    terminal: str | None = None
    paused: str | None = None

    @property
    def running(self) -> bool:
        """Whether a worker extracts it now."""
        return self.run_id is not None


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """One run of a partition, with its verdict if it has one."""

    partition_id: int
    attempt_no: int
    run_id: str
    raw_run_id: str
    """The run that wrote its raw data: itself, or the one that it validated again."""
    kind: Kind
    state: RunState
    lane: LaneName
    worker: str | None
    sweep_id: int | None
    leased_at: datetime
    ended_at: datetime | None
    note: str | None
    """Why a run without a verdict ended, or why a rejection does not count."""
    verdict: Verdict | None = None
    verdict_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Marker:
    """A decision about a partition beside its outcomes, by an operator or the policy."""

    kind: Literal["terminal", "paused", "grant"]
    cause: str
    actor: str
    because: str
    at: datetime
    attempts: int
    """Number of attempts when it was set."""
    amount: int | None = None
    """New attempts of a grant. None: as many as the policy has."""


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Selects the partitions that meet all conditions that are set.

    Without a condition it selects all partitions. Commands that change something refuse that.
    """

    source: str | None = None
    query_name: str | None = None
    customers: Sequence[str] | None = None
    since: date | None = None
    until: date | None = None
    shades: Sequence[DisplayStatus] | None = None
    reason: str | None = None
    """Of the last rejection."""
    min_attempts: int | None = None
    lane: LaneName | None = None
    ids: Sequence[int] | None = None
    keys: Sequence[Partition] | None = None

    @property
    def only_failing(self) -> bool:
        """Whether it selects failing partitions only, which have an index of their own."""
        return bool(self.shades) and all(
            DISPLAY_STATUSES.index(status) > 1 for status in self.shades or ()
        )

    @property
    def is_dated(self) -> bool:
        """Whether it selects by date, or by customer, whose partitions are found by date."""
        return not (self.since is None and self.until is None and self.customers is None)

    @property
    def everything(self) -> bool:
        """Whether it has no condition."""
        return all(getattr(self, name) is None for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class Cell:
    """One day of a calendar: number of partitions of a query by display status."""

    source: str
    query_name: str
    logical_date: date
    shades: Mapping[DisplayStatus, int]


@dataclass(frozen=True, slots=True)
class SourceView:
    """A source, and whether it is paused."""

    source: str
    paused: bool
    until: datetime | None
    """When one probe starts. None: not before it is unpaused."""
    because: str | None
    actor: str | None
    probes: int
    probing: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a partition is not running, the most important reason first.

    Without a reason, it may start with the next claim.
    """

    facts: PartitionView | None
    """None: nothing is stored of it."""
    now: datetime
    why: Sequence[str] = ()
    position: int | None = None
    """Place in the queue of its lane and dataset."""
    queued: int | None = None
    """Length of that queue, counted up to a limit."""
    budget: str | None = None
    sweep: int | None = None
    """The sweep that contains it and has not queued it yet."""
    damaged: PartitionRun | None = None
    """The run that found the current raw data gone or changed. Readers do not get it."""


@dataclass(frozen=True, slots=True)
class Act:
    """What an operator's command changed, and what it skipped."""

    count: int
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Reason by partition, as text."""
    audit: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. Immutable.

    Args:
        ok: True if the data is accepted.
        value: The measured value.
        limit: The limit it was compared with.
        detail: Explanation for an operator.
    """

    ok: bool
    value: Any = None
    limit: Any = None
    detail: str = ""


Check: TypeAlias = Callable[[Raw], Finding | bool]
"""Checks the data of a run. It returns True, False, or a Finding that says why."""
