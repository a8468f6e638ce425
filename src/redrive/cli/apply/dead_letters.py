"""Apply a plan for dead letters or jobs: print it, confirm it, and run it as a sweep."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from ...core.text import pluralise
from ...ops import Sweep
from ...ops.dead_letters.model import DeadLetterFilter
from ...ops.operator import Operator
from ...ops.plans.plan import Plan
from ...ops.render import ago, utc
from ...ops.sweeps import PAST_TENSES, Applied
from ..errors import INTERRUPTED, NOT_DONE, complain
from ..options import flag, option
from ..render import print_json, show, state_name, top_counts
from ..render.progress import sweep_progress
from ..suggestions import expand_commands
from ..unknown_names import unknown_kind, unknown_reason
from .confirm import ApplyOptions, show_done, show_plan, show_skipped

Rate = Annotated[float | None, option("--rate", "N", "Maximum per second (default: no limit)")]
Canary = Annotated[
    int,
    typer.Option(
        "--canary",
        min=0,
        metavar="N",
        help="Number processed first (the rest follows only if all succeed)",
    ),
]
MaxReplays = Annotated[
    int,
    typer.Option(
        "--max-replays",
        min=0,
        metavar="N",
        help="Skip if already replayed this many times (0: no limit)",
    ),
]
Detach = Annotated[bool, flag("--detach", "Processing by workers instead of this process")]


POLLS_PER_CHECK = 10
"""Steps of a waiting sweep between two checks for a worker."""


def apply_plan(ops: Operator, plan: Plan, apply: ApplyOptions, /, **limits: Any) -> None:
    """Print the plan, confirm it and run it. Ends the command with its exit code.

    Args:
        ops: The operator.
        plan: The plan.
        apply: How it is applied.
        limits: Arguments of `Operator.begin`.
    """
    apply.require_reason()
    if not apply.as_json:
        noun = "dead letter" if plan.change is None else "job"
        items = pluralise(plan.count, noun)
        reasons = {state_name(name): count for name, count in plan.reasons.items()}
        summary = f"{items} ({top_counts(plan.kinds)}; {top_counts(reasons)})"
        if plan.as_kind is not None:
            summary += f" as {plan.as_kind}"
        unknown = None if plan.count else _unknown_name(ops, plan)
        none = "No pending dead letter matches."
        if plan.change is not None:
            none = "No matching jobs to change. Ended jobs, and jobs as requested, are left out."
        show_plan(plan, summary, empty=unknown or none)
    if apply.confirmation.dry_run or not plan.count:
        if apply.as_json:
            print_json({"plan": plan, "done": {}, "skipped": plan.skipped})
        raise typer.Exit(0 if plan.count and not plan.skipped else NOT_DONE)
    if not apply.is_by_id:
        apply.confirmation.require(plan, ledger=ops.url, matched=plan.matched)
    sweep = ops.begin(plan, because=apply.because or "", **limits)
    if apply.detach:
        progress = f"workers process it. Progress: `redrive sweeps show {sweep.id}`"
        if apply.as_json:
            print_json({"plan": plan, "sweep": sweep})
        else:
            show(expand_commands(f"Sweep {sweep.id} started; {progress}"))
        raise typer.Exit(0)
    applied, is_interrupted = run_sweep(ops, sweep, quiet=apply.as_json)
    applied = ops.total(applied.sweep)  # with the part that workers processed
    skipped = {**plan.skipped, **applied.skipped}
    if apply.as_json:
        outcome = {"done": applied.done, "skipped": skipped, "sweep": applied.sweep}
        print_json({"plan": plan, **outcome})
    else:
        _show_applied(applied, plan)
    is_complete = applied.sweep.state == "done" and not skipped
    raise typer.Exit(INTERRUPTED if is_interrupted else 0 if is_complete else NOT_DONE)


def _unknown_name(ops: Operator, plan: Plan) -> str | None:
    unknown = unknown_kind(ops, plan.selection.kind)
    if unknown is None and isinstance(plan.selection, DeadLetterFilter):
        unknown = unknown_reason(ops, plan.selection.reason)
    return unknown


def run_sweep(ops: Operator, sweep: Sweep, /, *, quiet: bool = False) -> tuple[Applied, bool]:
    """Process the rest of a sweep in this process.

    Returns:
        The outcomes, and whether Ctrl+C interrupted it.
    """
    done: dict[int, int] = {}
    skipped: dict[int, str] = {}
    wait = CanaryWait(ops, quiet=quiet)
    if sweep.canary:
        wait.check_worker(sweep)
    try:
        with sweep_progress(sweep, quiet=quiet) as update:
            for step in ops.carry_out(sweep.id):
                done |= step.done
                skipped |= step.skipped
                sweep = step.sweep
                update(sweep)
                wait.update(sweep)
    except KeyboardInterrupt:
        complain(
            f"interrupted; workers continue with {pluralise(sweep.left, _noun(sweep))}",
            f'to stop: `redrive sweeps cancel {sweep.id} --because "..."`',
            f'to continue here: `redrive sweeps resume {sweep.id} --because "..."`',
        )
        return Applied(done, skipped, sweep), True
    return Applied(done, skipped, sweep), False


class CanaryWait:
    """Says that a command waits for its canary, and when no worker is online for it."""

    def __init__(self, ops: Operator, /, *, quiet: bool) -> None:
        self._ops, self._quiet = ops, quiet
        self._polls = 0
        self._is_reported = False

    def update(self, sweep: Sweep, /) -> None:
        """Take the sweep after a step. While it waits, there is a step in each second."""
        is_waiting = sweep.canary and sweep.made == sweep.canary and sweep.left
        if not is_waiting or sweep.state != "running":
            return
        self._polls += 1
        if self._polls == 1 and not self._quiet and not sys.stderr.isatty():  # no progress bar
            seen_at = self._ops.workers.last_heartbeat()
            last = "none so far" if seen_at is None else ago(seen_at, self._ops.now())
            jobs = pluralise(sweep.canary, "canary job")
            show(f"Waiting for {jobs}; last worker heartbeat: {last}")
        if self._polls % POLLS_PER_CHECK == 0:
            self.check_worker(sweep)

    def check_worker(self, sweep: Sweep, /) -> None:
        """Report once that no worker is online, so that the command does not wait silently."""
        missing_worker = None if self._is_reported else self._ops.workers.missing()
        if missing_worker is None:
            return
        self._is_reported = True
        complain(
            f"{missing_worker}; the canary ({sweep.canary:,}) waits for a worker, and the rest for"
            " the canary",
            "redrive work module:app",
            "Ctrl+C leaves the rest to workers",
        )


def _noun(sweep: Sweep) -> str:
    return "dead letter" if sweep.act in ("replay", "discard") else "job"


def _show_applied(applied: Applied, plan: Plan) -> None:
    sweep, noun = applied.sweep, _noun(applied.sweep)
    is_replay, past = sweep.act == "replay", PAST_TENSES[sweep.act]
    due = None if plan.change is None else plan.change.due
    time = "" if due is None else f" to {utc(due)} UTC"
    lines = [
        f"{noun.capitalize()} {id_} "
        + (f"queued as job {job_id}" if is_replay else applied.notes.get(id_, past) + time)
        for id_, job_id in applied.done.items()
    ]
    outcome = f"{'queued as new jobs' if is_replay else past + time} (sweep {sweep.id})"
    show_done(lines, summary=f"{pluralise(len(lines), noun)} {outcome}")
    show_skipped(applied.skipped)
    if sweep.state != "done":
        reason = f": {sweep.reason}" if sweep.reason else ""
        rest = "for workers" if sweep.state == "running" else "unchanged"
        text = f"Sweep {sweep.id} is {sweep.state}{reason}; {sweep.left:,} left {rest}"
        show(text, style="yellow")
