"""Gap: a day whose data is not there, and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Literal, TypeAlias

from .partition import Partition
from .record import Facts

Why: TypeAlias = Literal["never_run", "running", "failed", "terminal", "paused", "lost"]


@dataclass(frozen=True, slots=True)
class Gap:
    """A day without data. Immutable: threads may share it.

    Attributes:
        partition: The partition.
        why: `"never_run"`, `"running"`, `"failed"`, `"terminal"` (gave up), `"paused"` or `"lost"`
            (accepted, but its files are gone or changed).
        detail: Explanation.
    """

    partition: Partition
    why: Why
    detail: str


def gap(partition: Partition, facts: Facts | None, /, *, today: date) -> Gap:
    """Why there is nothing to read."""
    if facts is None:
        future = partition.logical_date > today
        return Gap(
            partition, "never_run", "the day is in the future" if future else "not queued so far by a schedule or a backfill"
        )
    if facts.running:
        return Gap(partition, "running", f"run {facts.run_id} is running{_last(facts)}")
    if facts.terminal is not None:
        return Gap(partition, "terminal", f"gave up: {facts.terminal}{_last(facts)}")
    if facts.paused is not None:
        return Gap(partition, "paused", f"paused: {facts.paused}{_last(facts)}")
    if facts.status == "failed":
        return Gap(partition, "failed", f"{_next(facts)}{_last(facts)}")
    return Gap(partition, "never_run", _next(facts))


def _next(facts: Facts) -> str:
    if facts.next_at is None:
        return "not retried automatically"
    return f"queued in lane {facts.lane}, due {facts.next_at.isoformat(timespec='seconds')}"


def _last(facts: Facts) -> str:
    if facts.last_verdict != "rejected":
        return ""
    said = (facts.error or "").strip().partition("\n")[0]
    return f"; attempt {facts.attempt_count} was rejected: {facts.reason or 'no reason given'}" + (f" ({said})" if said else "")
