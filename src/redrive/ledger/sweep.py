"""Sweep: a bulk operation on jobs, dead letters or partitions, and what its next step may do.

Free of SQLAlchemy, so that every part of Redrive can import it. All records are immutable: threads,
event loops and forked children may share them. `ledger/jobs/sweeps.py` stores sweeps, and carries
out those of dead letters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias, cast

Act: TypeAlias = Literal["replay", "discard"]
DEAD_LETTER_ACTS: tuple[Act, ...] = ("replay", "discard")
JobAct: TypeAlias = Literal["cancel", "run_now", "reschedule", "prioritise"]
JOB_ACTS: tuple[JobAct, ...] = ("cancel", "run_now", "reschedule", "prioritise")
ITEM_ACTS: tuple[str, ...] = (*DEAD_LETTER_ACTS, *JOB_ACTS)
"""Sweeps with one item for each dead letter or job. All others are over partitions."""
SweepState: TypeAlias = Literal["running", "paused", "halted", "cancelled", "done"]
CanaryVerdict: TypeAlias = Literal["running", "passed", "failed"]
MAX_STEP_ITEMS = 100
"""Dead letters in one transaction."""
CANARY_POLL_SECONDS = 1.0
MAX_ERROR_CHARS = 200
"""Characters of an error in the reason of a halt."""
MOVES: Mapping[str, tuple[frozenset[SweepState], SweepState]] = {
    "pause": (frozenset(("running",)), "paused"),
    # A running sweep can be resumed, because its process may be dead.
    "resume": (frozenset(("running", "paused", "halted")), "running"),
    "cancel": (frozenset(("running", "paused", "halted")), "cancelled"),
}
"""What an operator may do to a sweep: in which states, and the state afterwards."""


class DeadLetterChange(NamedTuple):
    """A change of dead letters. Immutable.

    Args:
        act: What to do.
        fresh: Of a replay: repeat finished steps, instead of reusing their results.
    """

    act: Act
    fresh: bool = False


class JobChange(NamedTuple):
    """A change of jobs that have not ended. Immutable.

    Args:
        act: What to do.
        due: Of a reschedule: the new time.
        priority: Of a reprioritisation: from -2 (first) to 2 (last).
    """

    act: JobAct
    due: datetime | None = None
    priority: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """What it needs besides its name, for JSON."""
        due = None if self.due is None else self.due.isoformat()
        values = {"due": due, "priority": self.priority}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_arguments(cls, act: str, stored: str | None, /) -> JobChange:
        """Return the change that was stored."""
        values = json.loads(stored) if stored else {}
        due = values.get("due")
        return cls(
            cast("JobAct", act),
            None if due is None else datetime.fromisoformat(due),
            values.get("priority"),
        )


@dataclass(frozen=True, slots=True)
class Sweep:
    """A bulk operation on many jobs, dead letters or partitions. Immutable.

    Attributes:
        id: Id of the sweep.
        act: `"replay"` or `"discard"` of dead letters, `"cancel"`, `"run_now"`, `"reschedule"` or
            `"prioritise"` of jobs, `"retry"`, `"reprocess"`, `"revalidate"` or `"backfill"` of
            partitions.
        state: `"running"`, `"paused"`, `"halted"` (its canary failed), `"cancelled"` or `"done"`.
        actor: Who started it.
        because: Why.
        selection: What was selected.
        rate: Maximum number of items in a second.
        canary: Number of items that go first.
        total: Number of items.
        made: Items that were processed.
        skipped: Items that were skipped.
        reason: Why it was halted.
        next_at: When the next step is due.
        created_at: When it was started.
        updated_at: When it last changed.
        ended_at: When it ended.
        passed: Whether the canary succeeded, or its failure was accepted.
    """

    id: int
    act: str
    state: SweepState
    actor: str
    because: str
    selection: Mapping[str, Any]
    rate: float | None
    canary: int
    total: int
    made: int
    skipped: int
    reason: str | None
    next_at: datetime
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    passed: bool = False

    @property
    def left(self) -> int:
        """Number of items that are not processed yet."""
        return self.total - self.made - self.skipped

    @property
    def halted_by_canary(self) -> bool:
        """Whether it stopped because its canary failed, and that was not accepted."""
        return self.state == "halted" and self.canary > 0 and not self.passed


SWEEP_COLUMNS = tuple(field.name for field in fields(Sweep))
"""Columns of the table `sweep` that a Sweep has."""


def sweep_from_row(row: Iterable[Any], /) -> Sweep:
    """Return the sweep of a row with the columns `SWEEP_COLUMNS`."""
    values = dict(zip(SWEEP_COLUMNS, row, strict=True))
    values["selection"] = json.loads(values["selection"]) if values["selection"] else {}
    return Sweep(**values)


class SweepItem(NamedTuple):
    """A dead letter or job of a sweep, with the result."""

    position: int
    dead_id: int | None
    """None: the action is on the job."""
    outcome: str | None
    job_id: int | None
    note: str | None
    at: datetime | None
    job_state: int | None
    """Stored state of the job. For a replay: of the new job. None: the job was deleted."""
    attempts: int | None = None
    """Attempts of that job."""
    error: str | None = None
    """Error of that job's last attempt."""
    current: bool | None = None
    """False: a later replay has replaced that job."""


@dataclass(frozen=True, slots=True)
class Canary:
    """The first jobs of a sweep, and the verdict on them. Immutable."""

    verdict: CanaryVerdict
    """Failed at the first failed attempt of any job, also while that job is still being retried."""
    size: int
    done: int
    failed: int
    """Jobs with a failed attempt that are not done, including dead ones."""
    dead: int
    error: str | None
    """First line of the last error."""

    @classmethod
    def of(
        cls, sweep: Sweep, /, *, done: int = 0, failed: int = 0, dead: int = 0, error: str | None
    ) -> Canary:
        """Return the verdict on these counts of the first jobs of a sweep."""
        verdict: CanaryVerdict = "running"
        if failed:
            verdict = "failed"
        elif done == min(sweep.canary, sweep.total - sweep.skipped):
            verdict = "passed"
        return cls(verdict, sweep.canary, done, failed, dead, error)

    @property
    def problem(self) -> str | None:
        """Why the rest must not follow. None: nothing has failed so far.

        It is stored, so it does not say which of the failed jobs are being retried.
        """
        if not self.failed:
            return None
        error = f": {self.error[:MAX_ERROR_CHARS]}" if self.error else ""
        return f"canary failed, {self.failed} of the first {self.size}{error}"


class SweepStep(NamedTuple):
    """The result of one step, and the sweep after it."""

    sweep: Sweep
    done: dict[int, int]
    skipped: dict[int, str]
    wait: float
    """Seconds until the next step."""


class StepPlan(NamedTuple):
    """What the next step may do: process items, wait or halt."""

    items: int
    wait: float = 0.0
    halt: str | None = None
    passed: bool = False
    """Whether the canary has passed."""


def plan_step(current: Sweep, canary: Canary, early: float, /) -> StepPlan:
    """Decide how many items may be processed now. Pure.

    Args:
        current: The sweep.
        canary: Its first jobs.
        early: Seconds until the rate allows more.
    """
    in_canary = bool(current.canary) and not current.passed and current.act == "replay"
    if in_canary and canary.problem is not None:
        return StepPlan(0, halt=canary.problem)
    if early > 0:
        polls = in_canary and current.made
        return StepPlan(0, wait=min(early, CANARY_POLL_SECONDS) if polls else early)
    most = MAX_STEP_ITEMS
    if current.rate is not None:
        most = max(1, min(MAX_STEP_ITEMS, int(current.rate)))
    most = min(most, current.left)
    if not in_canary:
        return StepPlan(most, passed=current.passed)
    if current.made < current.canary:
        return StepPlan(min(most, current.canary - current.made))
    if canary.done < current.canary:
        return StepPlan(0, wait=CANARY_POLL_SECONDS)
    return StepPlan(most, passed=True)
