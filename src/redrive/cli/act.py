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

from ..core.amount import amount
from ..ops.document import document
from ..ops.operator import Operator
from ..ops.plan import Plan
from ..ops.sweep import Applied, Sweep
from .confirm import confirmed
from .followup import spelled
from .options import INTERRUPTED, NOT_DONE
from .output import complain, console, print_json, show

Yes = Annotated[bool, typer.Option("--yes", help="Don't ask; needs --max.")]
Most = Annotated[
    int | None, typer.Option("--max", min=0, metavar="N", help="With --yes: do nothing if there are more.", show_default=False)
]
Dry = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Rate = Annotated[float | None, typer.Option("--rate", metavar="N", help="At most so many in a second.", show_default=False)]
Canary = Annotated[
    int, typer.Option("--canary", min=0, metavar="N", help="So many first; the rest only when all of them have ended well.")
]
MaxReplays = Annotated[
    int, typer.Option("--max-replays", min=0, metavar="N", help="Leave alone what was replayed so often; 0: never mind.")
]
Detach = Annotated[bool, typer.Option("--detach", help="Only write it down: workers carry it out.")]


@dataclass(frozen=True, slots=True)
class How:
    """How somebody wants it done."""

    because: str
    named: bool
    """By their numbers: nobody is asked."""
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
        raise ValueError(f"because= must say why: {how.because!r}")  # before anybody is asked anything
    if not how.as_json:
        show(console(), _plan(plan))
    if how.dry_run or not plan.count:
        if how.as_json:
            print_json({"plan": document(plan), "done": {}, "skipped": document(plan.skipped)})
        raise typer.Exit(NOT_DONE if plan.skipped else 0)
    if not how.named:
        confirmed(plan, yes=how.yes, most=how.most)
    begun = ops.begin(plan, because=how.because, **options)
    if how.detach:
        if how.as_json:
            print_json({"plan": document(plan), "sweep": document(begun)})
        else:
            words = f"Sweep {begun.id} is written down: workers carry it out; `redrive sweeps show {begun.id}`"
            show(console(), Text(spelled(words)))
        raise typer.Exit(0)
    applied, interrupted = carry_out(ops, begun, quiet=how.as_json)
    applied = ops.applied(applied)  # workers carried out a part of it
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
    nobody = ops.nobody() if sweep.canary else None
    if nobody is not None:  # it would wait for them without a word
        first = "it" if sweep.canary == 1 else "them"
        complain(
            f"{nobody}: the first {amount(sweep.canary, 'waits', 'wait')} until one is started, and the rest for {first}",
            "`redrive work module:app`; Ctrl+C leaves the rest to it",
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
            f"interrupted: {amount(sweep.left, 'is left, and workers go on with it', 'are left, and workers go on with them')}",
            f"to stop it: `redrive sweeps cancel {sweep.id}`; to go on here: `redrive sweeps resume {sweep.id}`",
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
            words = f"{now.act}: waiting for the first {now.canary} to end" if waits else now.act
            progress.update(task, completed=now.made + now.skipped, description=words)

        yield moved


def _plan(plan: Plan) -> RenderableType:
    lines: list[RenderableType] = []
    if plan.count:
        lines.append(Text(f"To {plan.act}: {many(plan.count)} ({counted(plan.kinds)}; {counted(plan.reasons)})"))
    elif not plan.skipped:
        lines.append(Text(f"nothing to {plan.act}: no dead letter that is pending matches"))
    if plan.more:
        lines.append(Text("More match, beyond --limit.", style="yellow"))
    lines += [Text(f"Not {letter_id}: {why}", style="yellow") for letter_id, why in plan.skipped.items()]
    return Group(*lines)


def _say(applied: Applied) -> None:
    out: Console = console()
    past = "replayed" if applied.sweep.act == "replay" else "discarded"
    if len(applied.done) <= 10:
        for letter_id, job_id in applied.done.items():
            show(out, Text(f"Dead letter {letter_id} {past}: job {job_id}"))
    else:
        show(out, Text(f"{many(len(applied.done))} {past}"))
    for letter_id, why in applied.skipped.items():
        show(out, Text(f"Not {letter_id}: {why}", style="yellow"))
    if applied.sweep.state != "done":
        because = f": {applied.sweep.reason}" if applied.sweep.reason else ""
        said = f"Sweep {applied.sweep.id} is {applied.sweep.state}{because}; {_left(applied.sweep.left)}"
        show(out, Text(said, style="yellow"))


def _left(count: int) -> str:
    return amount(count, "is left as it was", "are left as they were")


def many(count: int) -> str:
    """1 dead letter, 2 dead letters."""
    return amount(count, "dead letter")


def counted(counts: Mapping[str, int]) -> str:
    """The most frequent, with how many of each."""
    most = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} ×{count:,}" for name, count in most[:4]) + (", …" if len(most) > 4 else "")
