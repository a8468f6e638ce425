"""Sweep: a plan being carried out, as an operator sees it. It is written down first; whoever is killed, another goes on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, cast

from ..core.context import clock_around
from ..core.seconds import positive
from ..ledger.model import DEAD, DONE, DROPPED, PRUNED, display_state
from .dead_letters.queries import Selection
from .defaults import MOST_COUNTED
from .plans.plan import Plan

if TYPE_CHECKING:
    from ..ledger.jobs.sweeps import Act, SweepItem, SweepStep
    from ..ledger.jobs.sweeps import Sweep as Stored
    from ..ledger.ledger import Ledger

PAGE = 1000
"""Items of a sweep that are read at once."""
LABELS = {"at it": "in progress"}
"""How states of a sweep's jobs are shown, where that is not their name in JSON."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A bulk operation on many dead letters or partitions. Immutable.

    Attributes:
        id: Id of the sweep.
        act: `"replay"`, `"discard"`, `"retry"`, `"reprocess"`, `"revalidate"` or `"backfill"`.
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
    """

    id: int
    act: str
    state: str
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

    @property
    def left(self) -> int:
        """Number of items that are not processed yet."""
        return self.total - self.made - self.skipped


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one dead letter of a sweep."""

    letter_id: int
    outcome: str
    """waiting, skipped, discarded; of a replay, what its job is now: queued, running, retry_wait, done, dlq ..."""
    job_id: int | None
    note: str | None
    """Why it was skipped; or the last error of its job."""
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Canary:
    """The jobs that a sweep made first, and its verdict on them. Immutable."""

    verdict: Literal["running", "passed", "failed"]
    """Failed at the first failed attempt of any of them, also while that job is still being retried."""
    size: int
    done: int
    failed: int
    """Those with a failed attempt that are not done, dead ones included."""
    dead: int
    error: str | None
    """Of the last failed attempt, its first line."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """A sweep, with what became of what it did."""

    sweep: Sweep
    jobs: Mapping[str, int]
    """Of a replay: how many of its jobs are done, dead again, or still at it."""
    outcomes: tuple[Outcome, ...]
    now: datetime
    canary: Canary | None = None
    """Of a replay with a canary."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done of a plan, so far."""

    done: Mapping[int, int]
    """Dead letter to job: the new one of a replay, the dropped one of a discard."""
    skipped: Mapping[int, str]
    """Those that were no longer as planned, and were left alone."""
    sweep: Sweep


def begun(
    ledger: Ledger, plan: Plan, /, *, actor: str, because: str, rate: float | None, canary: int, max_replays: int | None
) -> Sweep:
    """Write the plan down as a sweep: from here on any worker carries it out."""
    if rate is not None:
        positive("rate", rate)
    if isinstance(canary, bool) or canary < 0:
        raise ValueError(f"canary= is how many go first: {canary!r}")
    return of_stored(
        ledger.sweeps.begin(
            cast("Act", plan.act), plan.ids, actor=actor, because=because, rate=rate, canary=canary, max_replays=max_replays,
            selection=_said(plan.selection),
        )
    )  # fmt: skip


def carried_out(ledger: Ledger, sweep_id: int, /) -> Iterator[Applied]:
    """Do it here, step by step, until it ends, or somebody pauses it. Others may do so at the same time.

    Each step names what was done here; `acted` has what was done by all of them.
    """
    clock = clock_around()
    while True:
        step: SweepStep = ledger.sweeps.step(sweep_id)
        yield Applied(step.done, step.skipped, of_stored(step.sweep))
        if step.sweep.state != "running":
            return
        if step.wait:
            clock.sleep(step.wait)


def acted(ledger: Ledger, sweep_id: int, /) -> tuple[dict[int, int], dict[int, str]]:
    """Everything that a sweep has done so far, whoever carried it out: dead letter to job; and skipped ones, with why."""
    done: dict[int, int] = {}
    skipped: dict[int, str] = {}
    after = -1
    while items := ledger.sweeps.items(sweep_id, after=after, limit=PAGE):
        for item in items:
            if item.outcome == "made" and item.job_id is not None:
                done[item.dead_id] = item.job_id
            elif item.outcome == "skipped":
                skipped[item.dead_id] = item.note or ""
        after = items[-1].position
    return done, skipped


def moved(ledger: Ledger, sweep_id: int, verb: str, /, *, actor: str, because: str) -> Sweep:
    """Pause, resume or cancel it. NotAllowed where it does not stand so."""
    return of_stored(ledger.sweeps.move(sweep_id, verb, actor=actor, because=because))


def listed(ledger: Ledger, /, *, limit: int) -> list[Sweep]:
    """The newest first."""
    return [of_stored(one) for one in ledger.sweeps.list(limit=limit)]


def count_sweeps(ledger: Ledger, acts: Collection[str] = (), /) -> int:
    """Return the number of sweeps, counted up to one more than MOST_COUNTED. acts: those only."""
    return ledger.sweeps.count(acts=tuple(acts), most=MOST_COUNTED + 1)


def reported(ledger: Ledger, sweep_id: int, /, *, after: int, limit: int) -> SweepReport | None:
    """One of them; None: there is none of that number."""
    found = ledger.sweeps.get(sweep_id)
    if found is None:
        return None
    jobs: dict[str, int] = {}
    if found.act == "replay":
        for state, many in ledger.sweeps.jobs(sweep_id).items():
            name = _named(state)
            jobs[name] = jobs.get(name, 0) + many
    items = ledger.sweeps.items(sweep_id, after=after, limit=limit)
    outcomes = tuple(_outcome(found.act, one) for one in items)
    return SweepReport(of_stored(found), jobs, outcomes, ledger.now(), _canary(ledger, found))


def _canary(ledger: Ledger, found: Stored) -> Canary | None:
    if not found.canary or found.act != "replay":
        return None
    seen = ledger.sweeps.canary(found)
    verdict: Literal["running", "passed", "failed"] = "failed" if seen.failed else "running"
    if not seen.failed and seen.done == min(found.canary, found.total - found.skipped):
        verdict = "passed"
    return Canary(verdict, seen.size, seen.done, seen.failed, seen.dead, seen.error)


def _named(state: int | None) -> str:
    if state in (DONE, PRUNED, None):
        return "done"
    return "dead again" if state in (DEAD, DROPPED) else "at it"


def _outcome(act: str, item: SweepItem) -> Outcome:
    if item.outcome is None:
        said = "waiting"
    elif item.outcome == "skipped":
        said = "skipped"
    elif act == "discard":
        said = "discarded"
    else:
        said = "done" if item.job_state is None else display_state(item.job_state, attempts=item.attempts or 0, replay=True)
    failed = said not in ("done", "discarded") and item.error is not None and act == "replay"
    note = (item.error or "").partition("\n")[0] if failed and item.note is None else item.note
    return Outcome(item.dead_id, said, item.job_id, note, item.at)


def progress(sweep: Sweep, jobs: Mapping[str, int] | None = None, /) -> str:
    """`2 of 3 replayed (1 done, 1 in progress), 1 left`. A replayed dead letter has a new job, which may not be done."""
    verb = {"replay": "replayed", "discard": "discarded"}.get(sweep.act, "queued")
    counted = ", ".join(f"{many:,} {LABELS.get(name, name)}" for name, many in (jobs or {}).items())
    parts = [f"{sweep.made:,} of {sweep.total:,} {verb}" + (f" ({counted})" if counted else "")]
    parts += [f"{sweep.skipped:,} skipped"] if sweep.skipped else []
    return ", ".join([*parts, f"{sweep.left:,} left"])


def time_left(sweep: Sweep, now: datetime, /) -> timedelta | None:
    """How long the rest takes: by its rate, else at the pace up to now. None: not running, or not known yet."""
    processed = sweep.made + sweep.skipped
    if sweep.state != "running" or not sweep.left or not processed or processed <= sweep.canary:
        return None
    each = timedelta(seconds=1 / sweep.rate) if sweep.rate else max(now - sweep.created_at, timedelta()) / processed
    return each * sweep.left


def of_stored(stored: Stored) -> Sweep:
    """As an operator sees it."""
    fields = {name: getattr(stored, name) for name in Sweep.__slots__}
    return Sweep(**fields | {"selection": json.loads(stored.selection) if stored.selection else {}})


def _said(selection: Selection) -> dict[str, Any]:
    given = {name: getattr(selection, name) for name in Selection.__slots__}
    return {name: value for name, value in given.items() if value is not None and value != ()}
