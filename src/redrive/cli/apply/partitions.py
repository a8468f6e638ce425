"""Apply a plan for partitions: print it, save or confirm it, and start its sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops import Sweep
from ...ops.operator import Operator
from ...ops.partitions.selection import MARKED, SKIP_NAMES, describe_skips, words_of
from ...ops.plans.plan import PartitionPlan, Plan
from ...ops.plans.stored import LIFE, StoredPlan, save_plan
from ..errors import INTERRUPTED, NOT_DONE, complain
from ..options import flag, option
from ..render import FieldValue, fields, print_json, shorten, show, suggestion, top_counts
from ..render.progress import sweep_progress
from ..suggestions import expand_commands, quote_argument
from .confirm import ApplyOptions

MAX_LISTED = 10
"""Partitions that are listed one by one."""

_BECAUSE = "Reason recorded in the audit log (required, except with --plan, --out or --dry-run)"
OptionalBecause = Annotated[str | None, option("--because", "TEXT", _BECAUSE)]
ClearTerminal = Annotated[
    bool, flag("--clear-terminal", "Include partitions that gave up, with new attempts")
]
IncludeMarked = Annotated[
    bool,
    flag(
        "--include-marked",
        "Include partitions that were marked as given up (default: only if named one by one)",
    ),
]
HaltOn = Annotated[
    float | None,
    option("--halt-on", "PART", "Share of rejected attempts that halts it, such as 0.05"),
]
WithoutRaw = Annotated[
    bool,
    flag(
        "--without-raw",
        "Include partitions of which no extraction ended, or whose raw data is gone",
    ),
]
PlanFile = Annotated[
    str | None, option("--out", "FILE", "File for the plan, instead of applying it")
]
SavePlan = Annotated[bool, flag("--plan", "Plan saved for 30 minutes, instead of applying it")]
AcceptDrift = Annotated[
    Literal["skip"] | None,
    typer.Option(
        "--accept-drift",
        help="Handling of partitions that changed since the plan (default: refuse all)",
        show_default=False,
    ),
]


def apply_plan(ops: Operator, plan: Plan, apply: ApplyOptions, /, **limits: Any) -> NoReturn:
    """Print the plan, save it or confirm and start it. Ends the command with its exit code.

    Args:
        ops: The operator.
        plan: The plan.
        apply: How it is applied.
        limits: Arguments of `Operator.begin`.
    """
    is_saved = apply.save or apply.file is not None
    is_dry = is_saved or apply.confirmation.dry_run
    if not is_dry:
        apply.require_reason()
    if not apply.as_json:
        view = plan_view(plan, without_raw=bool(limits.get("without_raw")))
        if not plan.count and plan.partitions is not None and not plan.partitions.left:
            view = ops.partitions.describe_no_match(plan.partitions.selection)
        show(view)
    if is_saved and plan.count:
        _show_saved(_save(ops, plan, apply.file), apply.as_json)
        raise typer.Exit(0)
    if is_dry or not plan.count:
        if apply.as_json:
            print_json({"plan": plan_data(plan), "sweep": None})
        raise typer.Exit(0 if plan.count else NOT_DONE)
    apply.confirmation.require_for_partitions(plan)
    sweep = ops.begin(plan, because=apply.because or "", **limits)
    is_backfill, is_interrupted = plan.act == "backfill", False
    if not apply.detach and not is_backfill:
        sweep, is_interrupted = _queue(ops, sweep, quiet=apply.as_json)
    if apply.as_json:
        print_json({"plan": plan_data(plan), "sweep": sweep})
    else:
        _show_started(ops, sweep)
    is_incomplete = sweep.state == "halted" or (not is_backfill and sweep.skipped > 0)
    raise typer.Exit(INTERRUPTED if is_interrupted else NOT_DONE if is_incomplete else 0)


def _queue(ops: Operator, sweep: Sweep, *, quiet: bool) -> tuple[Sweep, bool]:
    """Queue the partitions of a sweep. Returns whether Ctrl+C interrupted it."""
    try:
        with sweep_progress(sweep, quiet=quiet) as update:
            for step in ops.carry_out(sweep.id):
                sweep = step.sweep
                update(sweep)
    except KeyboardInterrupt:
        complain(
            f"interrupted; workers continue with {pluralise(sweep.left, 'partition')}",
            f'to stop: `redrive backfill cancel {sweep.id} --because "..."`',
        )
        return sweep, True
    return sweep, False


def _save(ops: Operator, plan: Plan, file: str | None) -> StoredPlan:
    try:
        return save_plan(plan, actor=ops.actor, now=ops.now(), url=ops.url, out=file)
    except OSError as error:
        raise ValueError(f"plan: cannot be saved ({error}); pass --out FILE") from None


def _show_saved(stored: StoredPlan, as_json: bool) -> None:
    if as_json:
        place = {"id": stored.id, "file": stored.path, "expires_at": stored.expires_at}
        print_json({"plan": plan_data(stored.plan), **place})
        return
    is_default_place = stored.path.endswith(f"/redrive/plans/{stored.id}.json")
    name = quote_argument(stored.id if is_default_place else stored.path)
    plan = f"Plan {stored.id}, digest {stored.plan.digest[:12]}"
    show(f"{plan}, expires in {LIFE.seconds // 60} min. Nothing was changed.")
    show(suggestion(f'redrive plan apply {name} --because "..."'))


def plan_data(plan: Plan, /) -> dict[str, Any]:
    """Return a plan for JSON, without the IDs of its partitions, which may be a million."""
    details = plan.partitions
    assert details is not None
    return {
        "act": plan.act,
        "count": plan.count,
        "digest": plan.digest,
        "datasets": plan.kinds,
        "reasons": plan.reasons,
        "left_alone": details.left,
        "running_now": plan.skipped,
        "readable": details.readable,
        "unreadable": details.unreadable,
        "without_raw": details.without_raw,
        "selection": words_of(details.selection),
        "missing_raw": details.missing_raw,
        "validates": details.validates,
        "unknown_customers": list(details.strangers),
        "options": details.wish,
    }


def plan_view(plan: Plan, /, *, without_raw: bool = False) -> RenderableType:
    """Return the partitions that the plan changes and those that it skips.

    Args:
        plan: The plan.
        without_raw: Whether partitions without raw data are included.
    """
    details = plan.partitions
    assert details is not None
    running = [
        f"{name}, {reason.removeprefix('running now, ')}" for name, reason in plan.skipped.items()
    ]
    validates = [f"{name}, run {run_id}" for name, run_id in details.validates.items()]
    more_runs = plan.count - details.without_raw - MAX_LISTED
    if len(validates) > MAX_LISTED:
        validates = [*validates[:MAX_LISTED], f"… {more_runs:,} more"]
    reasons = dict(plan.reasons)
    unvalidated = plan.count - sum(reasons.values())
    if plan.act == "retry" and unvalidated > 0:
        reasons["no verdict"] = unvalidated
    view = fields(
        {
            **_scope(plan, plan.count - _count_skipped(plan, without_raw)),
            "skipped": _skipped_counts(plan.act, details.left) if details.left else None,
            "running now": shorten(running, MAX_LISTED),
            "validates": validates,
            "by reason": top_counts(reasons) if plan.reasons else None,
            "accepted": _accepted_runs(details),
            "no raw data": _missing_raw(plan, without_raw),
        }
    )
    if plan.count:
        return view
    return Group(view, f"No partition to {plan.act}." if details.left else "No partition matches.")


def _accepted_runs(details: PartitionPlan) -> Sequence[RenderableType]:
    """Return how many partitions have an accepted run, and which of these cannot be read."""
    if not details.readable:
        return []
    verb = "has" if details.readable == 1 else "have"
    summary = f"{details.readable:,} of these {verb} an accepted run, which stays current"
    lost = [f"{name}: not readable, {problem}" for name, problem in details.unreadable.items()]
    return [summary, *(Text(line, style="red") for line in shorten(lost, MAX_LISTED))]


def _count_skipped(plan: Plan, without_raw: bool) -> int:
    """Return how many partitions of the plan are skipped because they have no raw data."""
    is_included = without_raw and plan.act == "retry"
    return 0 if plan.partitions is None or is_included else plan.partitions.without_raw


def _scope(plan: Plan, changed: int) -> dict[str, FieldValue]:
    """Return the partitions that the plan changes: of a backfill, or of a selection."""
    details = plan.partitions
    assert details is not None
    grid, count = details.grid, pluralise(changed, "partition")
    if grid is None:
        datasets = "".join(f" of {name}" for name in plan.kinds)
        if len(plan.kinds) > 1:
            datasets = f" of {pluralise(len(plan.kinds), 'dataset')}: {top_counts(plan.kinds)}"
        return {f"would {plan.act}": f"{count}{datasets}"}
    dataset = f"{grid.source}/{grid.query_name}"
    customers, days = pluralise(len(grid.customers), "customer"), pluralise(grid.days, "day")
    order = "newest day first" if grid.newest else "oldest day first"
    unknown = [
        f"customer {name}{similar}: no partition of {dataset} so far; all would be new"
        for name, similar in details.strangers.items()
    ]
    return {
        "backfill": f"{dataset} × {customers} × {days} = {len(grid):,}, {order}",
        "would extract": count,
        "unknown": [Text(line, style="yellow") for line in shorten(unknown, MAX_LISTED)],
    }


def _missing_raw(plan: Plan, is_included: bool) -> Sequence[RenderableType]:
    """Return how many partitions have no raw data, whether they are skipped, and which."""
    details = plan.partitions
    assert details is not None
    if not details.without_raw:
        return []
    if is_included and plan.act == "retry":
        verb = "is" if details.without_raw == 1 else "are"
        summary = f"{details.without_raw:,} of these {verb} extracted too (--without-raw)"
    else:
        unless = " unless you add --without-raw" if plan.act == "retry" else ""
        summary = f"{details.without_raw:,} skipped{unless}"
    names = [f"{name}: {reason}" for name, reason in details.missing_raw.items()][:MAX_LISTED]
    if details.without_raw > MAX_LISTED:
        names.append(f"… {details.without_raw - MAX_LISTED:,} more")
    return [Text(summary, style="yellow"), *names]


def _skipped_counts(act: str, counts: Mapping[str, int]) -> list[str]:
    """Return the skipped partitions by reason, each with the way to include them."""
    pronoun = "it" if counts.get("terminal") == 1 else "them"
    is_reprocess = act == "reprocess"
    hints = {
        "terminal": f" (use clear-terminal for {pronoun})"
        if is_reprocess
        else " (add --clear-terminal)",
        "accepted already": {"retry": " (use reprocess)", "backfill": " (add --again)"}.get(
            act, ""
        ),
        "never accepted": " (use retry)",
    }
    lines = [
        f"{count:,} {SKIP_NAMES.get(reason, reason)}{hints.get(reason, '')}"
        for reason, count in counts.items()
        if not reason.startswith(MARKED)
    ]
    way = "clear-terminal --include-marked" if act == "backfill" else "--include-marked"
    verb = "use" if act == "backfill" else "add"
    return [
        *([", ".join(lines)] if lines else []),
        *(
            f"{count:,} {reason} ({verb} {way})"
            for reason, count in counts.items()
            if reason.startswith(MARKED)
        ),
    ]


def _show_started(ops: Operator, sweep: Sweep) -> None:
    progress = f"Progress: `redrive backfill status {sweep.id}`"
    if sweep.act == "backfill":
        text = f"Backfill {sweep.id} started; workers extract it. {progress}"
    else:
        rest = f", {sweep.left:,} left" if sweep.left else ""
        queued = pluralise(sweep.made, "partition")
        text = f"{queued} queued{rest} (sweep {sweep.id}). {progress}"
    show(expand_commands(text))
    if sweep.skipped:
        report = ops.backfills.progress(sweep.id)
        skips = {} if report is None else report.progress.skips
        counts = describe_skips(skips)
        show(f"{sweep.skipped:,} skipped: {counts or 'no longer as planned'}", style="yellow")
    if sweep.state == "halted":
        show(f"Halted: {sweep.reason}", style="yellow")
