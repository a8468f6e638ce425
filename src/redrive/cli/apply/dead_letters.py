"""Apply a plan for dead letters: print it, confirm it, store it as a sweep, and run the sweep."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...core.text import pluralise
from ...ops.operator import Operator
from ...ops.plans.plan import Plan
from ...ops.sweeps import Applied, Sweep
from ..errors import INTERRUPTED, NOT_DONE, complain
from ..options import flag, option
from ..render import print_json, show, top_counts
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
        letters = pluralise(plan.count, "dead letter")
        summary = f"{letters} ({top_counts(plan.kinds)}; {top_counts(plan.reasons)})"
        selection, unknown = plan.selection, None
        if not plan.count:
            unknown = unknown_kind(ops, selection.kind) or unknown_reason(ops, selection.reason)
        show_plan(plan, summary, empty=unknown or "No pending dead letter matches.")
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
        _show_applied(applied)
    is_complete = applied.sweep.state == "done" and not skipped
    raise typer.Exit(INTERRUPTED if is_interrupted else 0 if is_complete else NOT_DONE)


def run_sweep(ops: Operator, sweep: Sweep, /, *, quiet: bool = False) -> tuple[Applied, bool]:
    """Process the rest of a sweep in this process.

    Returns:
        The outcomes, and whether Ctrl+C interrupted it.
    """
    done: dict[int, int] = {}
    skipped: dict[int, str] = {}
    missing_worker = ops.workers.missing() if sweep.canary else None
    if missing_worker is not None:  # Otherwise the command would wait for the canary silently.
        complain(
            f"{missing_worker}; the canary ({sweep.canary:,}) waits for a worker, and the rest for"
            " the canary",
            "redrive work module:app",
            "Ctrl+C leaves the rest to workers",
        )
    try:
        with sweep_progress(sweep, quiet=quiet) as update:
            for step in ops.carry_out(sweep.id):
                done |= step.done
                skipped |= step.skipped
                sweep = step.sweep
                update(sweep)
    except KeyboardInterrupt:
        complain(
            f"interrupted; workers continue with {pluralise(sweep.left, 'dead letter')}",
            f'to stop: `redrive sweeps cancel {sweep.id} --because "..."`',
            f'to continue here: `redrive sweeps resume {sweep.id} --because "..."`',
        )
        return Applied(done, skipped, sweep), True
    return Applied(done, skipped, sweep), False


def _show_applied(applied: Applied) -> None:
    sweep = applied.sweep
    is_replay = sweep.act == "replay"
    lines = [
        f"Dead letter {letter_id} {f'queued as job {job_id}' if is_replay else 'discarded'}"
        for letter_id, job_id in applied.done.items()
    ]
    outcome = f"{'queued as new jobs' if is_replay else 'discarded'} (sweep {sweep.id})"
    show_done(lines, summary=f"{pluralise(len(lines), 'dead letter')} {outcome}")
    show_skipped(applied.skipped)
    if sweep.state != "done":
        reason = f": {sweep.reason}" if sweep.reason else ""
        rest = "for workers" if sweep.state == "running" else "unchanged"
        text = f"Sweep {sweep.id} is {sweep.state}{reason}; {sweep.left:,} left {rest}"
        show(text, style="yellow")
