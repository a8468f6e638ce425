"""Sweeps: bulk operations, stored before they begin, so that any worker can continue them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, cast

from ..core.context import clock_around
from ..core.lazy import deferred
from ..core.seconds import positive
from ..ledger.model import DEAD, DONE, DROPPED, PRUNED, display_state
from ..ledger.sweep import Act, Canary, DeadLetterChange, Sweep, SweepItem
from ..partitions.key import dataset_label
from .audit import AuditOperations, Decision
from .context import MAX_REPLAYS, MOST_COUNTED, OperatorContext, check_reason
from .plans.plan import Plan

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..partitions import queries as partition_queries
else:  # few commands need them
    (partition_queries,) = deferred("redrive", "partitions.queries")

PAGE = 1000
"""Items of a sweep that are read at once."""
MAX_STOPS = 100
"""Newest pauses or cancellations that are searched for the one of a sweep."""
PARTITIONED = ("backfill", "fresh", "retry", "reprocess", "revalidate")
"""Sweeps over partitions. The others are over dead letters or jobs."""
PAST_TENSES = {
    "replay": "replayed",
    "discard": "discarded",
    "cancel": "cancelled",
    "run_now": "made due",
    "reschedule": "rescheduled",
    "prioritise": "reprioritised",
}
"""What a sweep over dead letters or jobs has done to its items."""
IN_PROGRESS = "at it"
"""Name in JSON, kept for compatibility. People see its label."""
JOB_STATES = ("done", IN_PROGRESS, "dead again")
"""States of replayed jobs, in the order in which they are shown."""
LABELS = {IN_PROGRESS: "in progress"}
"""How states of a sweep's jobs are shown, where that is not their name in JSON."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How a plan is carried out. Immutable.

    Args:
        rate: Maximum number of items in a second. None: no limit.
        canary: Process this many first. Continue only if all of them succeed.
        max_replays: For dead letters: skip those that were replayed this often. None: no limit.
        halt_on: For partitions: stop if more than this part of the verdicts are rejections.
        without_raw: For partitions: also retry those without raw data.
        accept_drift: For partitions: skip those that have changed since the plan, instead of an
            error.
        fresh: For replays: repeat finished steps, instead of reusing their results.
    """

    rate: float | None = None
    canary: int = 0
    max_replays: int | None = MAX_REPLAYS
    halt_on: float | None = None
    without_raw: bool = False
    accept_drift: bool = False
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The result of one dead letter of a sweep."""

    letter_id: int | None
    """None: of a sweep over jobs."""
    outcome: str
    """waiting, skipped or discarded. Of a replay, the state of its job: queued, running, done, dlq
    ..."""
    job_id: int | None
    note: str | None
    """Why it was skipped, or the last error of its job."""
    at: datetime | None
    after: Literal["replayed", "discarded"] | None = None
    """Later decision about a replay that died again. None: no decision, or it did not die."""

    @property
    def label(self) -> str | None:
        """Words for a replay that died again. None: the name of the outcome is clear."""
        if self.after is None:
            return "dead again" if self.outcome == "dlq" else None
        return f"dead again, {'replayed again' if self.after == 'replayed' else self.after}"


@dataclass(frozen=True, slots=True)
class SweepReport:
    """A sweep with the result of each item."""

    sweep: Sweep
    jobs: Mapping[str, int]
    """Of a replay: number of jobs that are done, dead again, or in progress (named `at it`)."""
    outcomes: tuple[SweepOutcome, ...]
    now: datetime
    canary: Canary | None = None
    """Of a replay with a canary."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What a sweep has done so far."""

    done: Mapping[int, int]
    """Job by dead letter: the new job of a replay, the dropped one of a discard. For a sweep over
    jobs, the job itself."""
    skipped: Mapping[int, str]
    """Dead letters or jobs that were no longer as planned, with the reason."""
    sweep: Sweep
    notes: Mapping[int, str] = field(default_factory=dict)
    """What became of each changed job, such as `stopping`. Empty for dead letters."""


@dataclass(frozen=True, slots=True)
class SweepOperations:
    """Operations on bulk operations, as `Operator.sweeps`. Threads may share one."""

    _context: OperatorContext

    def find(self, *, limit: int = 100) -> list[Sweep]:
        """Return bulk operations, newest first.

        Args:
            limit: Maximum number.

        Returns:
            The sweeps.
        """
        return self._context.ledger.sweeps.list(limit=limit)

    def count(self) -> int:
        """Return the number of bulk operations, counted up to 100,001.

        Returns:
            The number.
        """
        return count_sweeps(self._context.ledger)

    def get(self, sweep_id: int, /, *, after: int = -1, limit: int = 100) -> SweepReport | None:
        """Return one bulk operation with the result of each item.

        Args:
            sweep_id: Id of the sweep.
            after: Start after this position.
            limit: Maximum number of items.

        Returns:
            The report, or None.
        """
        ledger = self._context.ledger
        sweep = ledger.sweeps.get(sweep_id)
        if sweep is None:
            return None
        counts: Counter[str] = Counter()
        if sweep.act == "replay":
            for state, count in ledger.sweeps.jobs(sweep_id).items():
                counts[_job_state(state)] += count
        jobs = {name: counts[name] for name in JOB_STATES if counts[name]}
        items = ledger.sweeps.items(sweep_id, after=after, limit=limit)
        outcomes = tuple(_outcome(sweep.act, item) for item in items)
        has_canary = sweep.canary > 0 and sweep.act == "replay"
        canary = ledger.sweeps.canary(sweep) if has_canary else None
        return SweepReport(sweep, jobs, outcomes, ledger.now(), canary)

    def stopped_by(self, sweep: Sweep, /) -> Decision | None:
        """Return who paused or cancelled a sweep, and why.

        Args:
            sweep: The sweep.

        Returns:
            The entry of the audit log. None: the sweep was not paused or cancelled.
        """
        verb = {"paused": "pause", "cancelled": "cancel"}.get(sweep.state)
        if verb is None:
            return None
        audit = AuditOperations(self._context)
        entries = audit.find(action=f"sweep.{verb}", since=sweep.created_at, limit=MAX_STOPS)
        return next((entry for entry in entries if entry.what.get("sweep") == sweep.id), None)

    def pause(self, sweep_id: int, /, *, because: str) -> Sweep:
        """Pause a running sweep.

        Args:
            sweep_id: Id of the sweep.
            because: Why, for the audit log.

        Returns:
            The sweep.

        Raises:
            NotAllowed: It is not running.
        """
        return self._move(sweep_id, "pause", because)

    def resume(
        self, sweep_id: int, /, *, because: str, accept_failed_canary: bool = False
    ) -> Sweep:
        """Continue a sweep that was paused, halted by its canary, or left by its worker.

        Args:
            sweep_id: Id of the sweep.
            because: Why, for the audit log.
            accept_failed_canary: Required for a sweep that was halted by its canary. The rest
                then follows without another canary.

        Returns:
            The sweep.

        Raises:
            NotAllowed: It has ended, or its canary failed and this was not accepted.
        """
        return self._move(sweep_id, "resume", because, accept_failed_canary=accept_failed_canary)

    def cancel(self, sweep_id: int, /, *, because: str) -> Sweep:
        """Cancel the rest of a sweep. Completed items stay as they are.

        Args:
            sweep_id: Id of the sweep.
            because: Why, for the audit log.

        Returns:
            The sweep.
        """
        return self._move(sweep_id, "cancel", because)

    def begin(self, plan: Plan, /, *, because: str, options: SweepOptions) -> Sweep:
        """Store a plan for dead letters as a sweep. `Operator.begin` calls this.

        Args:
            plan: The plan.
            because: Why, for the audit log.
            options: Rate, canary and limits.

        Returns:
            The sweep.
        """
        if options.rate is not None:
            positive("rate", options.rate)
        if isinstance(options.canary, bool) or options.canary < 0:
            raise ValueError(f"canary= is how many go first: {options.canary!r}")
        selection = plan.selection.as_dict()
        if plan.as_kind is not None:
            selection["as"] = plan.as_kind
        return self._context.ledger.sweeps.begin(
            plan.change or DeadLetterChange(cast("Act", plan.act), options.fresh),
            plan.ids,
            actor=self._context.actor,
            because=because,
            rate=options.rate,
            canary=options.canary,
            max_replays=options.max_replays,
            selection=selection,
        )

    def carry_out(self, sweep_id: int, /) -> Iterator[Applied]:
        """Carry out a sweep of dead letters until it ends or is paused.

        `Operator.carry_out` calls this. Each step has what was done here. Workers may do other
        steps at the same time.

        Args:
            sweep_id: Id of the sweep.

        Yields:
            The steps.
        """
        clock = clock_around()
        while True:
            step = self._context.ledger.sweeps.step(sweep_id)
            yield Applied(step.done, step.skipped, step.sweep)
            if step.sweep.state != "running":
                return
            if step.wait:
                clock.sleep(step.wait)

    def total(self, sweep: Sweep, /) -> Applied:
        """Return everything that a sweep of dead letters has done, here and by workers.

        Args:
            sweep: The sweep.

        Returns:
            The total.
        """
        done: dict[int, int] = {}
        skipped: dict[int, str] = {}
        notes: dict[int, str] = {}
        after = -1
        while items := self._context.ledger.sweeps.items(sweep.id, after=after, limit=PAGE):
            for item in items:
                id_ = _item_id(item)
                if item.outcome == "made" and item.job_id is not None:
                    done[id_] = item.job_id
                    if item.note is not None:
                        notes[id_] = item.note
                elif item.outcome == "skipped":
                    skipped[id_] = item.note or ""
            after = items[-1].position
        return Applied(done, skipped, sweep, notes)

    def _move(self, sweep_id: int, verb: str, because: str, **options: bool) -> Sweep:
        check_reason(because)
        require_sweep(self._context, sweep_id)
        ledger, actor = self._context.ledger, self._context.actor
        return ledger.sweeps.move(sweep_id, verb, actor=actor, because=because, **options)


def require_sweep(context: OperatorContext, sweep_id: int, /) -> None:
    """Raise MissingRight if a sweep has items of job types that the rights do not cover."""
    context.require("sweep")
    if context.rights is None or context.rights.job_types is None:
        return
    sweep = context.ledger.sweeps.get(sweep_id)
    if sweep is not None and sweep.act in PARTITIONED:
        progress = partition_queries.PartitionQueries(context.ledger).progress(sweep_id)
        names = [] if progress is None else [dataset_label(*each) for each in progress.datasets]
    else:
        names = [*context.ledger.sweeps.kinds(sweep_id)]
    context.require("sweep", *names)


def count_sweeps(ledger: Ledger, acts: Collection[str] = (), /) -> int:
    """Return the number of sweeps of these kinds, counted up to one more than MOST_COUNTED."""
    return ledger.sweeps.count(acts=tuple(acts), most=MOST_COUNTED + 1)


def describe_progress(sweep: Sweep, jobs: Mapping[str, int] | None = None, /) -> str:
    """Return `2 of 3 replayed (1 done, 1 in progress), 1 left`.

    A replayed dead letter has a new job, which may not be done.
    """
    verb = PAST_TENSES.get(sweep.act, "queued")
    counts = ", ".join(
        f"{count:,} {LABELS.get(name, name)}" for name, count in (jobs or {}).items()
    )
    parts = [f"{sweep.made:,} of {sweep.total:,} {verb}" + (f" ({counts})" if counts else "")]
    if sweep.skipped:
        parts.append(f"{sweep.skipped:,} skipped")
    return ", ".join([*parts, f"{sweep.left:,} left"])


def time_left(sweep: Sweep, now: datetime, /) -> timedelta | None:
    """Estimate the rest by the rate, or else by the pace so far.

    None: not running, or not known.
    """
    processed = sweep.made + sweep.skipped
    if sweep.state != "running" or not sweep.left or processed <= sweep.canary:
        return None
    if sweep.rate:
        return timedelta(seconds=1 / sweep.rate) * sweep.left
    return max(now - sweep.created_at, timedelta()) / processed * sweep.left


def _job_state(state: int | None) -> str:
    if state in (DONE, PRUNED, None):
        return "done"
    return "dead again" if state in (DEAD, DROPPED) else IN_PROGRESS


def _outcome(act: str, item: SweepItem) -> SweepOutcome:
    if item.outcome is None:
        outcome = "waiting"
    elif item.outcome == "skipped":
        outcome = "skipped"
    elif act in PAST_TENSES and act != "replay":
        outcome = PAST_TENSES[act]
    elif item.job_state is None:
        outcome = "done"
    else:
        outcome = display_state(item.job_state, attempts=item.attempts or 0, replay=True)
    has_failed = act == "replay" and item.error is not None and outcome not in ("done", "discarded")
    note = (item.error or "").partition("\n")[0] if has_failed and item.note is None else item.note
    after: Literal["replayed", "discarded"] | None = None
    if act == "replay" and item.job_state == DROPPED:
        after = "discarded" if item.current else "replayed"
    return SweepOutcome(item.dead_id, outcome, item.job_id, note, item.at, after)


def _item_id(item: SweepItem) -> int:
    """Return the id of the dead letter, or of the job if there is none."""
    id_ = item.job_id if item.dead_id is None else item.dead_id
    assert id_ is not None
    return id_
