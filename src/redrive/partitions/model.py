"""Records: what the stores of partitions take and give. All are immutable: anything may share one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal, TypeAlias

from .key import Partition
from .raw.files import Raw

Status: TypeAlias = Literal["pending", "success", "failed"]
Shade: TypeAlias = Literal["pending", "success", "refresh_failed", "failed", "terminal"]
"""A status as people see it: success with a newer run that was rejected, and failed for good, are told apart."""
SHADES: tuple[Shade, ...] = ("success", "pending", "refresh_failed", "failed", "terminal")
"""As they are stored, by place: from the third on somebody may want to look."""
Lane: TypeAlias = Literal["fresh", "retry", "backfill"]
LANES: tuple[Lane, ...] = ("fresh", "retry", "backfill")
Kind: TypeAlias = Literal["initial", "retry", "reprocess", "revalidate", "backfill"]
RunState: TypeAlias = Literal["leased", "accepted", "rejected", "late", "lost", "returned"]
Decision: TypeAlias = Literal["accepted", "rejected"]
Cause: TypeAlias = Literal["not_ready", "rate_limited", "systemic", "stopped", "ledger"]
"""Why a lease is given back without a verdict: the attempt does not count. stopped: the worker is going. ledger: our own
database could not be used."""
DAMAGED = "damaged"
"""Why raw data is rejected that is gone, or is not what was written."""
TerminalCause: TypeAlias = Literal["attempts", "age", "lost", "error", "manual"]


@dataclass(frozen=True, slots=True)
class Lease:
    """The exclusive, expiring right to extract one partition, under a run of its own. `attempt_no` is its fence."""

    partition_id: int
    partition: Partition
    attempt_no: int
    """The number of this run among all of the partition's: grows, never comes back."""
    run_id: str
    kind: Kind
    lane: Lane
    attempts: int
    """Verdicts so far that count against the policy."""
    current_run_id: str | None
    """The run in force: what readers get while this one is under way."""
    current_raw_id: str | None
    """The run whose raw data that is; another one's where it was revalidated."""
    raw_run_id: str | None
    """Revalidate: the run whose raw data is to be judged again; nothing is extracted."""
    sweep_id: int | None
    lost: int
    until: datetime
    uncharged: int = 0
    """Earlier runs that ended without data and do not count as attempts: outages, rate limits and faults of the ledger."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A validator's word on one run. Said once: a repetition changes nothing."""

    run_id: str
    decision: Decision
    validator: str = "redrive"
    version: str = ""
    checks: Sequence[Mapping[str, Any]] = ()
    """Each with name, ok, value, limit, detail; whatever JSON can say."""
    record_count: int | None = None
    reason: str | None = None
    """Rejected: in a word, such as `row_count`; for an extraction that raised, what its error is."""
    message: str | None = None
    manifest: str | None = None
    """Digest of the manifest that was judged."""
    after: float | None = None
    """Rejected: not before so many seconds, whatever the backoff says."""
    final: bool = False
    """Rejected: no use trying again; terminal at once."""
    signature: str | None = None
    """Rejected for a fault that may be the source's, so evidence of an outage: equal for faults of one cause. Not stored."""
    shared: bool = False
    """That fault is a refused credential, a block, or the raw store's: with several customers it is the source's. Not stored."""
    charged: bool = False
    """Counts as an attempt, outage or not: the partition has used up the attempts that do not. Not stored."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a verdict came to."""

    run_id: str
    outcome: Literal["accepted", "rejected", "late", "repeated", "unknown", "spared"]
    """late: somebody newer has the partition; it counts, and moves nothing. repeated: said before. unknown: no such run. spared:
    its source rests for this very fault, or this was the probe: nothing was counted, and the lease is to be given back."""
    partition: Partition | None = None
    attempt_count: int = 0
    status: Status = "pending"
    next_at: datetime | None = None
    """When it is tried again; none: never, unless somebody asks."""
    terminal: TerminalCause | None = None


@dataclass(frozen=True, slots=True)
class Return:
    """A lease that is given back without a verdict."""

    lease: Lease
    cause: Cause
    error: str | None = None
    after: float | None = None
    """Not before so many seconds: the source's own words. None: by the policy."""
    signature: str | None = None
    """Systemic: equal for faults of one cause."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one partition: its outcomes, and beside them its work. What stays None is not so."""

    id: int
    partition: Partition
    status: Status
    shade: Shade
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
    lane: Lane | None = None
    next_at: datetime | None = None
    """When it is tried again: the time shown is the time used."""
    strategy: str | None = None
    """How that time came about."""
    run_id: str | None = None
    """Of the run under way."""
    worker: str | None = None
    until: datetime | None = None
    """How long its lease lasts."""
    sweep_id: int | None = None
    terminal: str | None = None
    paused: str | None = None

    @property
    def running(self) -> bool:
        """Whether somebody has it now."""
        return self.run_id is not None


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt at a partition, with the verdict on it, if there is one."""

    partition_id: int
    attempt_no: int
    run_id: str
    raw_run_id: str
    """Where its raw data is: its own, or of the run that it judged again."""
    kind: Kind
    state: RunState
    lane: Lane
    worker: str | None
    sweep_id: int | None
    leased_at: datetime
    ended_at: datetime | None
    note: str | None
    """Without a verdict: why it ended; with one: that it was an outage's, and is not charged."""
    verdict: Verdict | None = None
    verdict_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Marker:
    """What the control plane, or a person, decided about a partition beside its outcomes."""

    kind: Literal["terminal", "paused", "grant"]
    cause: str
    actor: str
    because: str
    at: datetime
    attempts: int
    """The partition's count when it was set."""
    amount: int | None
    """Of a grant: so many new attempts; none: as many as the policy has."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions: all that is given must hold. By itself it means everything; verbs refuse that."""

    source: str | None = None
    query_name: str | None = None
    customers: Sequence[str] | None = None
    since: date | None = None
    until: date | None = None
    shades: Sequence[Shade] | None = None
    reason: str | None = None
    """Of the last rejection."""
    min_attempts: int | None = None
    lane: Lane | None = None
    ids: Sequence[int] | None = None
    keys: Sequence[Partition] | None = None

    @property
    def troubled(self) -> bool:
        """Whether it is for those alone that somebody may want to look at: they have an index of their own."""
        return bool(self.shades) and all(SHADES.index(one) > 1 for one in self.shades or ())

    @property
    def dated(self) -> bool:
        """Whether it is by dates, or by customers, which are found by their dates."""
        return not (self.since is None and self.until is None and self.customers is None)

    @property
    def everything(self) -> bool:
        """Whether nothing at all is asked for."""
        return all(getattr(self, name) is None for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class Cell:
    """One day of a calendar: how many partitions of a query, in which shade."""

    source: str
    query_name: str
    logical_date: date
    shades: Mapping[Shade, int]


@dataclass(frozen=True, slots=True)
class Source:
    """A source as the control plane has it."""

    source: str
    paused: bool
    until: datetime | None
    """When one probe is let through; none: until somebody says so."""
    because: str | None
    actor: str | None
    probes: int
    probing: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a partition is not running now, most telling first; empty: it may start with the next claim."""

    facts: Facts | None
    """None: nothing is stored of it."""
    now: datetime
    why: Sequence[str] = ()
    position: int | None = None
    """How many of its lane and dataset are due before it."""
    queued: int | None = None
    """How many of its lane and dataset wait, counted up to a limit."""
    budget: str | None = None
    sweep: int | None = None
    """The sweep in whose range it stands and whose turn has not come."""
    damaged: Run | None = None
    """The run that found the raw data in force to be gone, or changed: readers do not get it."""


@dataclass(frozen=True, slots=True)
class Act:
    """What an operator's verb did, and to what it did nothing."""

    count: int
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Partition, as text, and why it was left alone."""
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
"""Looks at what a run wrote. True or False will do; a Finding says why."""
