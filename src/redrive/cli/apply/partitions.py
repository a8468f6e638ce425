"""Planned: a plan about partitions, shown, confirmed, written down, and carried out as far as that goes without workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops.operator import Operator
from ...ops.partitions.selection import words_of
from ...ops.plans.plan import Plan
from ...ops.plans.stored import LIFE, StoredPlan, save_plan
from ...ops.render import document
from ...ops.sweeps import Sweep
from ..options import INTERRUPTED, NOT_DONE, option
from ..commands.partitions.render import quoted
from ..render.output import complain, console, pairs, print_json, show
from ..render.suggestions import spelled, then
from .confirm import agreed
from .dead_letters import counted, sweep_bar

_BECAUSE = "Reason recorded in the audit log (required, except with --plan, --out or --dry-run)"
BecauseOf = Annotated[str | None, option("--because", "TEXT", _BECAUSE)]
ClearTerminal = Annotated[bool, typer.Option("--clear-terminal", help="Include partitions that gave up, with new attempts")]
HaltOn = Annotated[
    float | None,
    typer.Option(
        "--halt-on",
        metavar="PART",
        help="Share of rejected attempts that halts it, such as 0.05",
        show_default=False,
    ),
]
WithoutRaw = Annotated[bool, typer.Option("--without-raw", help="Include partitions without raw data (default: skipped)")]
Out = Annotated[str | None, option("--out", "FILE", "File for the plan, instead of applying it")]
Keep = Annotated[bool, typer.Option("--plan", help="Plan saved for 30 minutes, instead of applying it")]
AcceptDrift = Annotated[
    Literal["skip"] | None,
    typer.Option(
        "--accept-drift", help="Handling of partitions that changed since the plan (default: refuse all)", show_default=False
    ),
]
LISTED = 10


@dataclass(frozen=True, slots=True)
class Told:
    """How somebody wants it done."""

    because: str | None
    yes: bool = False
    most: int | None = None
    dry_run: bool = False
    as_json: bool = False
    detach: bool = False
    keep: bool = False
    out: str | None = None


def carried_out(ops: Operator, plan: Plan, how: Told, /, **options: Any) -> NoReturn:
    """Show the plan; keep it, or ask, and begin it; ends with the exit status."""
    keeps = how.keep or how.out is not None
    if not (keeps or how.dry_run) and not (how.because or "").strip():
        raise ValueError("--because: pass a reason")  # before the prompt
    if not how.as_json:
        show(console(), planned(plan, without_raw=bool(options.get("without_raw"))))
    if keeps and plan.count:
        _kept(store(ops, plan, how.out), how.as_json)
        raise typer.Exit(0)
    if how.dry_run or keeps or not plan.count:
        if how.as_json:
            print_json({"plan": data(plan), "sweep": None})
        raise typer.Exit(0 if plan.count else NOT_DONE)
    agreed(plan, yes=how.yes, most=how.most)
    sweep = ops.begin(plan, because=how.because or "", **options)
    interrupted = False
    if not how.detach and plan.act != "backfill":
        sweep, interrupted = _queued(ops, sweep, quiet=how.as_json)
    if how.as_json:
        print_json({"plan": data(plan), "sweep": document(sweep)})
    else:
        report = ops.backfills.progress(sweep.id) if sweep.skipped else None
        _say(console(), plan, sweep, {} if report is None else report.progress.skips)
    stopped = sweep.state == "halted" or (plan.act != "backfill" and sweep.skipped > 0)
    raise typer.Exit(INTERRUPTED if interrupted else NOT_DONE if stopped else 0)


def _queued(ops: Operator, sweep: Sweep, *, quiet: bool) -> tuple[Sweep, bool]:
    try:
        with sweep_bar(sweep, quiet=quiet) as moved:
            for step in ops.carry_out(sweep.id):
                sweep = step.sweep
                moved(sweep)
    except KeyboardInterrupt:
        complain(
            f"interrupted; workers continue with {pluralise(sweep.left, 'partition')}",
            f'to stop: `redrive backfill cancel {sweep.id} --because "..."`',
        )
        return sweep, True
    return sweep, False


def store(ops: Operator, plan: Plan, out: str | None) -> StoredPlan:
    """Written into a file: that leaves no trace in the ledger."""
    try:
        return save_plan(plan, actor=ops.actor, now=ops.now(), url=ops.url, out=out)
    except OSError as problem:
        raise ValueError(f"plan: cannot be saved ({problem}); pass --out FILE") from None


def _kept(stored: StoredPlan, as_json: bool) -> None:
    if as_json:
        print_json({"plan": data(stored.plan), "id": stored.id, "file": stored.path, "expires_at": document(stored.expires_at)})
        return
    name = stored.id if stored.path.endswith(f"/redrive/plans/{stored.id}.json") else stored.path
    apply = f'redrive plan apply {quoted(name)} --because "..."'
    lines = [
        Text(f"Plan {stored.id}, digest {stored.plan.digest[:12]}, expires in {LIFE.seconds // 60} min. Nothing was changed."),
        Text(f"→ {then(apply)}", style="dim"),
    ]
    show(console(), Group(*lines))


def data(plan: Plan, /) -> dict[str, Any]:
    """A plan as JSON has it; the numbers of a million partitions are nothing to read."""
    about = plan.partitions
    assert about is not None
    return {
        "act": plan.act, "count": plan.count, "digest": plan.digest, "datasets": dict(plan.kinds), "reasons": dict(plan.reasons),
        "left_alone": dict(about.left), "running_now": dict(plan.skipped), "readable": about.readable,
        "without_raw": about.without_raw, "selection": words_of(about.selection),
        "missing_raw": dict(about.missing_raw), "validates": dict(about.validates),
        "unknown_customers": list(about.strangers), "options": document(about.wish),
    }  # fmt: skip


def planned(plan: Plan, /, *, without_raw: bool = False) -> RenderableType:
    """What would be done, and what would not. without_raw: partitions without raw data are included."""
    about = plan.partitions
    assert about is not None
    made = pairs()
    grid = about.grid
    if grid is not None:
        order = "newest day first" if grid.newest else "oldest day first"
        said = f"{grid.source}/{grid.query_name} × {pluralise(len(grid.customers), 'customer')} × {pluralise(grid.days, 'day')}"
        made.add_row("backfill", f"{said} = {len(grid):,}, {order}")
        made.add_row("would extract", partitions(plan.count))
        for at, (name, meant) in enumerate(list(about.strangers.items())[:LISTED]):
            new = f"customer {name}{meant}: no partition of {grid.source}/{grid.query_name} so far; all would be new"
            made.add_row("" if at else "unknown", Text(new, style="yellow"))
        if len(about.strangers) > LISTED:
            made.add_row("", Text(f"… {len(about.strangers) - LISTED:,} more", style="yellow"))
    else:
        made.add_row(f"would {plan.act}", partitions(plan.count) + _of(plan))
    if about.left:
        made.add_row("skipped", _left(plan, about.left))
    for at, (name, why) in enumerate(list(plan.skipped.items())[:LISTED]):
        made.add_row("running now" if at == 0 else "", f"{name}, {why.removeprefix('running now, ')}")
    if len(plan.skipped) > LISTED:
        made.add_row("", f"… {len(plan.skipped) - LISTED:,} more")
    for at, (name, run_id) in enumerate(list(about.validates.items())[:LISTED]):
        made.add_row("" if at else "validates", f"{name}, run {run_id}")
    if len(about.validates) > LISTED:
        made.add_row("", f"… {plan.count - about.without_raw - LISTED:,} more")
    if plan.reasons:
        made.add_row("by reason", counted(plan.reasons))
    if about.readable:
        made.add_row("readable", f"{about.readable:,} of these have an accepted run, which stays current")
    if about.without_raw:
        made.add_row("no raw data", Text(_no_raw(plan.act, about.without_raw, without_raw), style="yellow"))
        for name, why in list(about.missing_raw.items())[:LISTED]:
            made.add_row("", f"{name}: {why}")
        if about.without_raw > LISTED:
            made.add_row("", f"… {about.without_raw - LISTED:,} more")
    if not plan.count:
        return Group(made, Text(f"No partition to {plan.act}." if about.left else "No partition matches."))
    return made


def _no_raw(act: str, count: int, included: bool) -> str:
    """How many partitions have no raw data, and whether they are skipped."""
    verb = "is" if count == 1 else "are"
    if included and act == "retry":
        return f"{count:,} of these {verb} extracted too (--without-raw)"
    return f"{count:,} of these {verb} skipped" + (" unless you add --without-raw" if act == "retry" else "")


def _of(plan: Plan) -> str:
    if len(plan.kinds) > 1:
        return f" of {pluralise(len(plan.kinds), 'dataset')}: {counted(plan.kinds)}"
    return "".join(f" of {name}" for name in plan.kinds)


def _left(plan: Plan, left: Mapping[str, int]) -> str:
    hints = {
        "terminal": _tried(plan.act, left.get("terminal", 0)),
        "accepted already": _again(plan.act),
        "never accepted": " (use retry)",
    }
    return ", ".join(f"{many:,} {why}{hints.get(why, '')}" for why, many in left.items())


def _tried(act: str, many: int) -> str:
    them = "it" if many == 1 else "them"
    return f" (use clear-terminal for {them})" if act == "reprocess" else " (add --clear-terminal)"


def _again(act: str) -> str:
    return {"retry": " (use reprocess)", "backfill": " (add --again)"}.get(act, "")


def partitions(count: int) -> str:
    """1 partition, 2 partitions."""
    return pluralise(count, "partition")


def _say(out: Console, plan: Plan, sweep: Sweep, skips: Mapping[str, int]) -> None:
    if plan.act == "backfill":
        said = f"Backfill {sweep.id} started; workers extract it. Progress: `redrive backfill status {sweep.id}`"
    else:
        left = f", {sweep.left:,} left" if sweep.left else ""
        said = f"{partitions(sweep.made)} queued{left} (sweep {sweep.id}). Progress: `redrive backfill status {sweep.id}`"
    show(out, Text(spelled(said)))
    if sweep.skipped:
        reasons = ", ".join(f"{many:,} {why}" for why, many in skips.items()) or "no longer as planned"
        show(out, Text(f"{sweep.skipped:,} skipped: {reasons}", style="yellow"))
    if sweep.state == "halted":
        show(out, Text(f"Halted: {sweep.reason}", style="yellow"))
