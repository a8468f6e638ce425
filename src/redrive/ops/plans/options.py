"""Chosen: which partitions a plan is about, and how it is to be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...partitions.model import Lane, Selection

if TYPE_CHECKING:
    from ...partitions.control.sweeps import Grid
    from ...partitions.store.frozen_selection import Picked


@dataclass(frozen=True, slots=True)
class Wish:
    """How it is to be done, said with the plan. Immutable."""

    clear_terminal: bool = False
    """What is terminal too, with as many new attempts as the policy has, or as `grant` says."""
    grant: int | None = None
    lane: Lane | None = None
    share: float | None = None
    """Of a backfill: its part of all work, as long as others wait too."""
    again: bool = False
    """Of a backfill: also what is accepted already."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """What a plan about partitions is about. Immutable."""

    count: int
    digest: str
    """Of these partitions as they are: what somebody has looked at can be told from what is there now."""
    selection: Selection
    wish: Wish
    left: Mapping[str, int] = field(default_factory=dict)
    """How many are left alone, for which reason."""
    readable: int = 0
    """How many of them have an earlier success, which stays readable."""
    without_raw: int = 0
    """How many of them have no raw data: a revalidation skips them, and a retry too unless it is told otherwise."""
    missing_raw: Mapping[str, str] = field(default_factory=dict)
    """Those, as text, and why each has none. The first 100."""
    validates: Mapping[str, str] = field(default_factory=dict)
    """Of a revalidation: the run whose raw data is validated, by partition. The first 100."""
    picked: Picked | None = None
    grid: Grid | None = None
    total: int = 0
    """Of a range, what is left alone with it."""
    strangers: Mapping[str, str] = field(default_factory=dict)
    """Of a range: customers that were named, whom the app does not know, and who have no partition; who may have been meant."""
