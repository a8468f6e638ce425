"""`redrive sweeps`: what was done to many dead letters at once, and what is being done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ..ops.document import document
from ..ops.operator import Operator
from ..ops.sweep import Sweep, SweepReport
from .act import Detach, carry_out, counted
from .fit import Column, fitted
from .moments import ago, both
from .options import INTERRUPTED, NOT_DONE, Actor, AsJson, Because, Where, operator
from .output import complain, console, heading, pairs, print_json, show

app = typer.Typer(no_args_is_help=True, help="Replays and discards of many: how far they are; pause, resume, cancel.")
Number = Annotated[int, typer.Argument(metavar="ID", help="The sweep's number.")]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")]
WIDTH = 20


@app.command("list")
def list_(limit: Limit = 20, where: Where = None, as_json: AsJson = False) -> None:
    """List sweeps, the newest first.

    Exit status: 0, listed, also where there are none; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where) as ops:
        found = ops.sweeps(limit=limit)
        if as_json:
            print_json(document(found))
        else:
            out = console()
            nothing = Text("no sweeps: nothing was replayed or discarded yet")
            show(out, _sweeps(found, ops.now(), out.width) if found else nothing)


def _sweeps(found: Sequence[Sweep], now: datetime, width: int) -> RenderableType:
    columns = [
        Column("id", number=True),
        Column("what"),
        Column("state"),
        Column("progress", leave=2),
        Column("done", number=True),
        Column("of", number=True),
        Column("begun"),
        Column("who", least=6, cut=True, leave=1),
        Column("because", least=14, wants=20, cut=True, leave=3),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "id": str(one.id), "what": one.act, "state": one.state, "progress": bar(one), "done": f"{one.made:,}",
            "of": f"{one.total:,}", "begun": ago(one.created_at, now), "who": one.actor, "because": one.because,
        }
        for one in found
    ]  # fmt: skip
    return fitted(columns, rows, width)


def bar(sweep: Sweep, /) -> Text:
    """How far it is, in one line: done, skipped, still to come."""
    total = sweep.total or 1
    made, skipped = round(WIDTH * sweep.made / total), round(WIDTH * sweep.skipped / total)
    return Text("━" * made, "green") + Text("━" * skipped, "yellow") + Text("╌" * (WIDTH - made - skipped), "dim")


@app.command("show")
def show_(sweep_id: Number, limit: Limit = 20, where: Where = None, as_json: AsJson = False) -> None:
    """Show one sweep: how far it is, and what became of each dead letter.

    Exit status: 0, shown; 1, there is none of that number; 2, a wrong option; 3, the ledger cannot be reached or has another
    schema.
    """
    with operator(where) as ops:
        report = ops.sweep(sweep_id, limit=limit)
        if report is None:
            complain(f"there is no sweep {sweep_id}; `redrive sweeps list` lists them")
            raise typer.Exit(NOT_DONE)
        if as_json:
            print_json(document(report))
            return
        out = console()
        show(out, _report(report, out.width))
        unmanned(ops, report.sweep)


def unmanned(ops: Operator, sweep: Sweep, /) -> None:
    """Say so, where nobody is there to carry it out."""
    nobody = ops.nobody() if sweep.state == "running" else None
    if nobody is not None:
        complain(f"{nobody}: the rest of it waits until one is started", "redrive work module:app")


def _report(report: SweepReport, width: int) -> Group:
    sweep, now = report.sweep, report.now
    first = pairs()
    first.add_row("state", sweep.state + (f": {sweep.reason}" if sweep.reason else ""))
    first.add_row("progress", bar(sweep))
    skipped = f", {sweep.skipped:,} skipped" if sweep.skipped else ""
    first.add_row("", f"{sweep.made:,} of {sweep.total:,}{skipped}, {sweep.left:,} left")
    if report.jobs:
        first.add_row("their jobs", counted(report.jobs))
    if sweep.selection:
        first.add_row("which", ", ".join(f"{name} {_words(value)}" for name, value in sweep.selection.items()))
    first.add_row("rate", "as fast as it goes" if sweep.rate is None else f"{sweep.rate:g} in a second")
    if sweep.canary:
        first.add_row("canary", _canary(report))
    first.add_row("by", f"{sweep.actor}, because {sweep.because}")
    first.add_row("begun", both(sweep.created_at, now))
    if sweep.ended_at:
        first.add_row("ended", both(sweep.ended_at, now))
    columns = [
        Column("letter", number=True),
        Column("outcome"),
        Column("job", number=True),
        Column("when"),
        Column("why", least=8),
    ]
    rows = [
        {
            "letter": str(one.letter_id), "outcome": one.outcome, "job": str(one.job_id or "–"), "when": ago(one.at, now),
            "why": one.note or "",
        }
        for one in report.outcomes
    ]  # fmt: skip
    shown: list[RenderableType] = [heading(f"Sweep {sweep.id}: {sweep.act}"), Padding(first, (0, 0, 0, 2), expand=False)]
    if rows:
        shown += ["", fitted(columns, rows, width)]
        if sweep.total > len(rows):
            shown += ["", Text(f"The first {len(rows):,} of {sweep.total:,}: raise --limit for more.", style="dim")]
    return Group(*shown)


def _canary(report: SweepReport) -> Text:
    """The verdict on those that went first: failed at the first failed attempt, not at the last."""
    canary = report.canary
    if canary is None:
        return Text(f"the first {report.sweep.canary:,}")
    if canary.verdict == "failed":
        retried = canary.failed - canary.dead
        parts = [f"{canary.done:,} done", f"{canary.dead:,} dead", f"{retried:,} being retried"]
        error = f"; {canary.error}" if canary.error else ""
        return Text(f"FAILED: {canary.failed:,} of the first {canary.size:,} ({', '.join(parts)}){error}", style="red")
    if canary.verdict == "passed":
        return Text(f"passed: the first {canary.size:,} are done", style="green")
    return Text(f"running: {canary.done:,} of the first {canary.size:,} done, none failed")


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@app.command()
def pause(sweep_id: Number, because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
    """Do nothing more of it for now.

    Exit status: 0, paused; 1, it is not running; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where, actor) as ops:
        _said(ops.pause(sweep_id, because=because), as_json)


@app.command()
def cancel(sweep_id: Number, because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
    """Never do the rest of it. What was done stays done.

    Exit status: 0, cancelled; 1, it has ended; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where, actor) as ops:
        _said(ops.cancel(sweep_id, because=because), as_json)


@app.command()
def resume(
    sweep_id: Number, because: Because, detach: Detach = False, actor: Actor = None, where: Where = None, as_json: AsJson = False
) -> None:
    """Go on with one that was paused, halted by its canary, or left behind; here, unless --detach leaves it to the workers.

    Exit status: 0, it is done (or, with --detach, running); 1, it has ended, or stopped again; 2, a wrong option; 3, the ledger
    cannot be reached or has another schema; 130, interrupted.
    """
    with operator(where, actor) as ops:
        sweep = ops.resume(sweep_id, because=because)
        interrupted = False
        if not detach:
            applied, interrupted = carry_out(ops, sweep, quiet=as_json)
            sweep = applied.sweep
        _said(sweep, as_json)
        raise typer.Exit(INTERRUPTED if interrupted else 0 if detach or sweep.state == "done" else NOT_DONE)


def _said(sweep: Sweep, as_json: bool) -> None:
    if as_json:
        print_json(document(sweep))
    else:
        show(console(), Text(f"Sweep {sweep.id} is {sweep.state}: {sweep.made:,} of {sweep.total:,} done, {sweep.left:,} left"))
