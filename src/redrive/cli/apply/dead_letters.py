"""Act: what is done to many dead letters: shown, confirmed, written down as a sweep, and carried out with its progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ...core.text import pluralise
from ...ops.operator import Operator
from ...ops.plans.plan import Plan
from ...ops.render import document
from ...ops.sweeps import Applied, Sweep
from ..options import INTERRUPTED, NOT_DONE
from ..render.output import complain, console, print_json, show
from ..render.suggestions import spelled
from .confirm import confirmed

Yes = Annotated[bool, typer.Option("--yes", help="No confirmation prompt (needs --max)")]
Most = Annotated[
    int | None,
    typer.Option("--max", min=0, metavar="N", help="Upper bound with --yes, above which nothing is done", show_default=False),
]
Dry = Annotated[bool, typer.Option("--dry-run", help="Plan only, without any change")]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="Maximum per second (default: no limit)", show_default=False)
]
Canary = Annotated[
    int, typer.Option("--canary", min=0, metavar="N", help="Number processed first (the rest follows only if all succeed)")
]
MaxReplays = Annotated[
    int, typer.Option("--max-replays", min=0, metavar="N", help="Skip if already replayed this many times (0: no limit)")
]
Detach = Annotated[bool, typer.Option("--detach", help="Processing by workers instead of this process")]


@dataclass(frozen=True, slots=True)
class How:
    """The options of the command."""

    because: str
    named: bool
    """By IDs: no confirmation is needed."""
    yes: bool
    most: int | None
    dry_run: bool
    as_json: bool
    detach: bool


def bound(ids: list[int] | None, limit: int) -> int:
    """Those that were named are all meant."""
    return max(limit, len(ids)) if ids else limit


def act(ops: Operator, plan: Plan, how: How, /, **options: Any) -> None:
    """Show the plan, ask, and carry it out; ends with the exit status."""
    if not how.because.strip():
        raise ValueError("--because: pass a reason")  # before the prompt
    if not how.as_json:
        show(console(), _plan(plan))
    if how.dry_run or not plan.count:
        if how.as_json:
            print_json({"plan": document(plan), "done": {}, "skipped": document(plan.skipped)})
        raise typer.Exit(NOT_DONE if plan.skipped or not (plan.count or how.dry_run) else 0)
    if not how.named:
        confirmed(plan, yes=how.yes, most=how.most)
    begun = ops.begin(plan, because=how.because, **options)
    if how.detach:
        if how.as_json:
            print_json({"plan": document(plan), "sweep": document(begun)})
        else:
            words = f"Sweep {begun.id} started; workers process it. Progress: `redrive sweeps show {begun.id}`"
            show(console(), Text(spelled(words)))
        raise typer.Exit(0)
    applied, interrupted = carry_out(ops, begun, quiet=how.as_json)
    applied = ops.total(applied.sweep)  # workers carried out a part of it
    skipped = {**plan.skipped, **applied.skipped}
    if how.as_json:
        said = {"plan": document(plan), "done": document(applied.done), "skipped": document(skipped)}
        print_json(said | {"sweep": document(applied.sweep)})
    else:
        _say(applied)
    ended = applied.sweep.state == "done" and not skipped
    raise typer.Exit(INTERRUPTED if interrupted else 0 if ended else NOT_DONE)


def carry_out(ops: Operator, sweep: Sweep, /, *, quiet: bool = False) -> tuple[Applied, bool]:
    """Do the rest of a sweep, with a bar where there is a terminal; whether it was interrupted."""
    done: dict[int, int] = {}
    skipped: dict[int, str] = {}
    interrupted = False
    nobody = ops.workers.missing() if sweep.canary else None
    if nobody is not None:  # it would wait for them without a word
        complain(
            f"{nobody}; the canary ({sweep.canary:,}) waits for a worker, and the rest for the canary",
            "redrive work module:app",
            "Ctrl+C leaves the rest to workers",
        )
    try:
        with sweep_bar(sweep, quiet=quiet) as moved:
            for step in ops.carry_out(sweep.id):
                done |= step.done
                skipped |= step.skipped
                sweep = step.sweep
                moved(sweep)
    except KeyboardInterrupt:
        complain(
            f"interrupted; workers continue with {pluralise(sweep.left, 'dead letter')}",
            f'to stop: `redrive sweeps cancel {sweep.id} --because "..."`',
            f'to continue here: `redrive sweeps resume {sweep.id} --because "..."`',
        )
        interrupted = True
    return Applied(done, skipped, sweep), interrupted


@contextmanager
def sweep_bar(sweep: Sweep, *, quiet: bool) -> Iterator[Any]:
    """A function that is told how far it is; a bar where there is a terminal."""
    out = Console(stderr=True, highlight=False)
    if quiet or not out.is_terminal or not sys.stderr.isatty():
        yield lambda _now: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task(sweep.act, total=sweep.total, completed=sweep.made + sweep.skipped)

        def moved(now: Sweep) -> None:
            waits = now.canary and now.made == now.canary and now.left
            words = f"{now.act}: waiting for the canary ({now.canary})" if waits else now.act
            progress.update(task, completed=now.made + now.skipped, description=words)

        yield moved


def _plan(plan: Plan) -> RenderableType:
    lines: list[RenderableType] = []
    if plan.count:
        lines.append(Text(f"To {plan.act}: {many(plan.count)} ({counted(plan.kinds)}; {counted(plan.reasons)})"))
    elif not plan.skipped:
        lines.append(Text("No pending dead letter matches."))
    if plan.more:
        lines.append(Text("More match; use --limit for more.", style="yellow"))
    lines += [Text(f"Skipped {letter_id}: {why}", style="yellow") for letter_id, why in plan.skipped.items()]
    return Group(*lines)


def _say(applied: Applied) -> None:
    out: Console = console()
    replays = applied.sweep.act == "replay"
    if len(applied.done) <= 10:
        for letter_id, job_id in applied.done.items():
            show(out, Text(f"Dead letter {letter_id} {f'queued as job {job_id}' if replays else 'discarded'}"))
    else:
        show(out, Text(f"{many(len(applied.done))} {'queued as new jobs' if replays else 'discarded'}"))
    for letter_id, why in applied.skipped.items():
        show(out, Text(f"Skipped {letter_id}: {why}", style="yellow"))
    if applied.sweep.state != "done":
        because = f": {applied.sweep.reason}" if applied.sweep.reason else ""
        said = f"Sweep {applied.sweep.id} is {applied.sweep.state}{because}; {_left(applied.sweep)}"
        show(out, Text(said, style="yellow"))


def _left(sweep: Sweep) -> str:
    return f"{sweep.left:,} left for workers" if sweep.state == "running" else f"{sweep.left:,} left unchanged"


def many(count: int) -> str:
    """1 dead letter, 2 dead letters."""
    return pluralise(count, "dead letter")


def counted(counts: Mapping[str, int]) -> str:
    """The most frequent, with how many of each."""
    most = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} ×{count:,}" for name, count in most[:4]) + (", …" if len(most) > 4 else "")
