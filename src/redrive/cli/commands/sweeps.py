"""`redrive sweeps`: what was done to many dead letters at once, and what is being done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ...core.text import format_duration, pluralise
from ...ops.operator import Operator
from ...ops.render import document
from ...ops.sweep import Sweep, SweepReport, progress, time_left
from ..apply.dead_letters import Detach, carry_out
from ..command import Commands
from ..render.follow import follow as follow_report
from ..render.follow import stopped_watching
from ..options import INTERRUPTED, NOT_DONE, Actor, AsJson, Because, Where, operator
from ..render.details import cut_note, showing, state_name, with_note
from ..render.moments import ago, both
from ..render.output import complain, console, heading, pairs, print_json, show
from ..render.suggestions import then
from ..render.table import Column, fitted

app = Commands(help="Control bulk replays and discards.")
Number = Annotated[int, typer.Argument(metavar="ID", help="ID of the sweep")]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of sweeps, or of outcomes of one sweep")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Progress until the sweep ends")]
WIDTH = 20
OF_DEAD_LETTERS = ("replay", "discard")
"""Sweeps over dead letters. Others are over partitions, and workers process them."""


@app.command("list")
def list_(limit: Limit = 20, where: Where = None, as_json: AsJson = False) -> None:
    """List sweeps.

    A sweep is a bulk replay or discard of dead letters. Backfills and other bulk operations on
    partitions are listed too. Newest first.

    Examples:
        redrive sweeps list
        redrive sweeps list --limit 5 --json

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        found = ops.sweeps(limit=limit)
        if as_json:
            print_json(document(found))
        else:
            out = console()
            total = ops.count_sweeps() if len(found) == limit else None
            listed = with_note(_sweeps(found, ops.now(), out.width), cut_note(len(found), total))
            show(out, listed if found else Text("No sweeps."))


def _sweeps(found: Sequence[Sweep], now: datetime, width: int) -> RenderableType:
    columns = [
        Column("id", number=True),
        Column("action"),
        Column("state"),
        Column("progress", leave=2),
        Column("processed", number=True),
        Column("total", number=True),
        Column("started"),
        Column("by", least=6, cut=True, leave=1),
        Column("because", least=14, wants=20, cut=True, leave=3),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "id": str(one.id), "action": one.act, "state": one.state, "progress": bar(one),
            "processed": f"{one.made + one.skipped:,}", "total": f"{one.total:,}",
            "started": ago(one.created_at, now), "by": one.actor, "because": one.because,
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
def show_(sweep_id: Number, follow: Follow = False, limit: Limit = 20, where: Where = None, as_json: AsJson = False) -> None:
    """Show the progress of a sweep.

    Shows how many dead letters are processed, the state of their jobs, the time left, and the
    outcome of each. With --follow the progress is updated until the sweep ends. In a pipe or a file,
    --follow prints a line for each change, and with --json each line is one document. Ctrl+C ends
    only --follow, and the sweep continues.

    Examples:
        redrive sweeps show 7
        redrive sweeps show 7 --follow

    Exit codes:
        0: shown; with --follow, the sweep is done
        1: no sweep with this ID; with --follow, the sweep did not end as done
        2: invalid option
        3: ledger not reachable, or its schema is from another version
        130: --follow was interrupted; the sweep continues
    """
    with operator(where) as ops:
        report = ops.sweep(sweep_id, limit=limit)
        if report is None:
            complain(f"sweep {sweep_id}: not found; `redrive sweeps list` lists sweeps")
            raise typer.Exit(NOT_DONE)
        interrupted = False
        if follow:
            report, interrupted = _followed(ops, report, limit, as_json=as_json)
        if not as_json:
            out = console()
            show(out, _report(report, out.width))
            unmanned(ops, report.sweep)
        elif not follow:
            print_json(document(report))
        if interrupted:
            stopped_watching(
                f"sweep {sweep_id}",
                f"redrive sweeps show {sweep_id} --follow",
                f'to stop the sweep: `redrive sweeps pause {sweep_id} --because "..."`',
            )
            raise typer.Exit(INTERRUPTED)
        raise typer.Exit(NOT_DONE if follow and report.sweep.state != "done" else 0)


def _followed(ops: Operator, report: SweepReport, limit: int, *, as_json: bool) -> tuple[SweepReport, bool]:
    return follow_report(
        report,
        lambda: ops.sweep(report.sweep.id, limit=limit),
        running=lambda seen: seen.sweep.state == "running",
        drawn=_report,
        line=lambda seen: f"{_state(seen)}; {progress(seen.sweep, seen.jobs)}",
        as_json=as_json,
    )


def unmanned(ops: Operator, sweep: Sweep, /) -> None:
    """Warn if no worker is online to process it."""
    nobody = ops.nobody() if sweep.state == "running" else None
    if nobody is not None:
        complain(f"{nobody}; the rest waits for a worker", "redrive work module:app")


def _report(report: SweepReport, width: int) -> Group:
    sweep, now = report.sweep, report.now
    first = pairs()
    first.add_row("state", _state(report))
    first.add_row("progress", bar(sweep))
    first.add_row("", progress(sweep, report.jobs))
    left = time_left(sweep, now)
    if left is not None:
        first.add_row("time left", f"about {format_duration(round(left.total_seconds()))}")
    if sweep.selection:
        first.add_row("selection", ", ".join(f"{name} {_words(value)}" for name, value in sweep.selection.items()))
    first.add_row("rate", "no limit" if sweep.rate is None else f"{sweep.rate:g}/s")
    if sweep.canary:
        first.add_row("canary", _canary(report))
    first.add_row("by", sweep.actor)
    first.add_row("because", sweep.because)
    first.add_row("started", both(sweep.created_at, now))
    if sweep.ended_at:
        first.add_row("ended", both(sweep.ended_at, now))
    columns = [
        Column("dead letter", number=True),
        Column("outcome"),
        Column("job", number=True),
        Column("when"),
        Column("error", least=8),
    ]
    rows = [
        {
            "dead letter": str(one.letter_id), "outcome": _outcome(sweep, one.outcome),
            "job": str(one.job_id or "–"), "when": ago(one.at, now),
            "error": one.note or "",
        }
        for one in report.outcomes
    ]  # fmt: skip
    shown: list[RenderableType] = [heading(f"Sweep {sweep.id}: {sweep.act}"), Padding(first, (0, 0, 0, 2), expand=False)]
    if rows:
        shown += ["", fitted(columns, rows, width)]
        if sweep.total > len(rows):
            shown += ["", Text(showing(len(rows), sweep.total), style="dim")]
    if sweep.act not in OF_DEAD_LETTERS:
        shown += ["", Text(f"→ {then(f'redrive backfill status {sweep.id}')}", style="dim")]
    elif sweep.state in ("paused", "halted"):
        resume = then(f'redrive sweeps resume {sweep.id} --detach --because "..."')
        shown += ["", Text(f"→ {resume}\n→ {resume.replace('resume', 'cancel', 1).replace(' --detach', '', 1)}", style="dim")]
    return Group(*shown)


def _state(report: SweepReport) -> str:
    """The state with its reason. A replay is done when all its jobs are enqueued, not when they have ended."""
    sweep, running = report.sweep, report.jobs.get("at it", 0)
    if sweep.act == "replay" and sweep.state == "done" and running:
        return f"done: all enqueued, {pluralise(running, 'job')} in progress"
    return sweep.state + (f": {sweep.reason}" if sweep.reason else "")


def _outcome(sweep: Sweep, outcome: str) -> str:
    return "not processed" if sweep.state == "cancelled" and outcome == "waiting" else state_name(outcome)


def _canary(report: SweepReport) -> Text:
    """The state of the canary, which fails at the first failed attempt."""
    canary = report.canary
    if canary is None:
        return Text(f"the first {report.sweep.canary:,}")
    if canary.verdict == "failed":
        retried = canary.failed - canary.dead
        parts = [f"{canary.done:,} done", f"{canary.dead:,} dead", f"{retried:,} retrying"]
        error = f"; {canary.error}" if canary.error else ""
        return Text(f"failed: {canary.failed:,} of {canary.size:,} ({', '.join(parts)}){error}", style="red")
    if canary.verdict == "passed" and report.sweep.state == "halted":
        return Text(f"failed at first; by now {canary.size:,} of {canary.size:,} are done", style="yellow")
    if canary.verdict == "passed":
        return Text(f"passed: {canary.size:,} of {canary.size:,} done", style="green")
    return Text(f"running: {canary.done:,} of {canary.size:,} done, none failed")


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@app.command()
def pause(sweep_id: Number, because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
    """Pause a sweep.

    No further dead letter is processed until the sweep is resumed.

    Examples:
        redrive sweeps pause 7 --because "CRM is slow"

    Exit codes:
        0: paused
        1: not running
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where, actor) as ops:
        _said(ops.pause(sweep_id, because=because), as_json)


@app.command()
def cancel(sweep_id: Number, because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
    """Cancel the rest of a sweep.

    Dead letters that are processed already stay as they are.

    Examples:
        redrive sweeps cancel 7 --because "wrong selection"

    Exit codes:
        0: cancelled
        1: already ended
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where, actor) as ops:
        _said(ops.cancel(sweep_id, because=because), as_json)


@app.command()
def resume(
    sweep_id: Number, because: Because, detach: Detach = False, actor: Actor = None, where: Where = None, as_json: AsJson = False
) -> None:
    """Resume a sweep.

    Resumes a sweep that was paused, halted by its canary, or left by a killed process. It runs in
    this process. With --detach workers process it.

    Examples:
        redrive sweeps resume 7 --because "CRM is back"
        redrive sweeps resume 7 --detach --because "CRM is back"

    Exit codes:
        0: done; with --detach, running
        1: already ended, or stopped again
        2: invalid option
        3: ledger not reachable, or its schema is from another version
        130: interrupted; workers continue the sweep
    """
    with operator(where, actor) as ops:
        sweep = ops.resume(sweep_id, because=because)
        interrupted = False
        if not detach and sweep.act in OF_DEAD_LETTERS:
            applied, interrupted = carry_out(ops, sweep, quiet=as_json)
            sweep = applied.sweep
        _said(sweep, as_json)
        raise typer.Exit(
            INTERRUPTED if interrupted else 0 if detach or sweep.state == "done" or sweep.act not in OF_DEAD_LETTERS else NOT_DONE
        )


def _said(sweep: Sweep, as_json: bool) -> None:
    if as_json:
        print_json(document(sweep))
    else:
        show(console(), Text(f"Sweep {sweep.id} is {sweep.state}: {progress(sweep)}"))
