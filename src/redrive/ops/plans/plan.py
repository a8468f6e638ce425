"""Plan: what an operation would do to dead letters or partitions.

Making a plan changes nothing and is not recorded. Applying it is recorded in the audit log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...ledger.filters import JobFilter
    from ...ledger.sweep import JobChange
    from ...partitions.control.sweeps import Grid
    from ...partitions.model import LaneName, PartitionFilter
    from ...partitions.store.frozen_selection import FrozenSelection
    from ..dead_letters.model import DeadLetterFilter


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of a plan for partitions. Immutable."""

    clear_terminal: bool = False
    """Include partitions that gave up. They get `grant` new attempts, or those of the policy."""
    grant: int | None = None
    lane: LaneName | None = None
    share: float | None = None
    """Of a backfill: its part of all work while other work is queued too."""
    again: bool = False
    """Of a backfill: include accepted partitions."""
    include_marked: bool = False
    """Of a retry: include partitions that an operator marked as given up, too."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The part of a plan that is about partitions. Immutable."""

    count: int
    digest: str
    """Digest of the partitions and their states, to compare with a reviewed plan."""
    selection: PartitionFilter
    wish: PlanOptions
    left: Mapping[str, int] = field(default_factory=dict)
    """Number of partitions that are skipped, by reason."""
    readable: int = 0
    """Number of partitions with an accepted run, which stays current."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """The first 100 of these whose raw data cannot be read, with the reason. Only if the store is
    known and the plan has at most 1,000 partitions."""
    without_raw: int = 0
    """Number of partitions without raw data. A revalidation skips them, and a retry by default."""
    missing_raw: Mapping[str, str] = field(default_factory=dict)
    """The first 100 of these, with the reason."""
    validates: Mapping[str, str] = field(default_factory=dict)
    """Of a revalidation: the run whose raw data is validated, for the first 100 partitions."""
    picked: FrozenSelection | None = None
    grid: Grid | None = None
    total: int = 0
    """Of a backfill: number of partitions, skipped ones included."""
    strangers: Mapping[str, str] = field(default_factory=dict)
    """Of a backfill: named customers without a partition that the app does not know, each with a
    similar known name."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned operation on dead letters or partitions. Immutable.

    Attributes:
        act: `"replay"`, `"discard"`, `"cancel"`, `"run_now"`, `"reschedule"`, `"prioritise"`,
            `"retry"`, `"reprocess"`, `"revalidate"` or `"backfill"`.
        ids: Ids of the dead letters, jobs or partitions. Empty for a backfill, which is a range.
        kinds: Number of items by job type or dataset.
        reasons: Number of items by reason, of jobs by state.
        skipped: Items that were selected but cannot be changed, with the reason.
        more: True if more items match than the limit allows.
        selection: Filter of dead letters or jobs.
        errors: Number of items by signature of their error.
        partitions: Details, if the plan is about partitions.
        beyond: Number of items that match beyond the limit, counted up to 1,000,000.
        change: The change, if the plan is about jobs.
        as_kind: Of a replay: job type of the new jobs, if the command or handler was renamed.
    """

    act: str
    ids: Sequence[int]
    kinds: Mapping[str, int]
    reasons: Mapping[str, int]
    skipped: Mapping[Any, str]
    more: bool
    selection: DeadLetterFilter | JobFilter
    errors: Mapping[str, int] = field(default_factory=dict)
    partitions: PartitionPlan | None = None
    beyond: int = 0
    change: JobChange | None = None
    as_kind: str | None = None

    @property
    def matched(self) -> int:
        """Number of items that match, including those beyond the limit."""
        return self.count + self.beyond

    @property
    def count(self) -> int:
        """Number of dead letters or partitions."""
        return len(self.ids) if self.partitions is None else self.partitions.count

    @property
    def digest(self) -> str:
        """Digest of the operation and its items. Pass it as `begin(seen=...)`."""
        if self.partitions is not None:
            return self.partitions.digest
        # Without the arguments of a change: the page of the plan lets them be entered.
        extra = [] if self.as_kind is None else [self.as_kind]
        return hashlib.sha256(json.dumps([self.act, self.ids, *extra]).encode()).hexdigest()[:32]


def is_confirmed(count: int, typed: str, /) -> bool:
    """Return whether the typed text is the number of items, which confirms a large plan."""
    return typed.strip().replace(",", "") == str(count)
