"""`redrive backfill`: ranges of days: planned, applied, watched, steered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ..core.amount import amount
from ..core.context import clock_around
from ..core.span import span
from ..ops.backfill import PARTITIONED, BackfillReport
from ..ops.document import document
from ..ops.operator import Operator
from ..ops.plan import Plan
from ..ops.selection import day
from ..ops.sweep import Sweep
from .act import Canary, Most, Rate, Yes, counted
from .fit import Column, fitted
from .followup import spelled
from .moments import ago, both
from .options import NOT_DONE, Actor, AsJson, Because, Where, operator, option
from .output import Harmless, complain, console, heading, pairs, print_json, show
from .plan import applied
from .planned import AcceptDrift, HaltOn, Out, Told, carried_out
from .selectors import Customers
from .shown import indented
from .sweeps import bar, unmanned

app = typer.Typer(no_args_is_help=True, help="Backfills: ranges of days; plan, apply, how far, pause, resume, cancel, share.")
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="source/query, such as crm/orders.")]
Since = Annotated[str, option("--since", "DAY", "From this day on, such as 2026-06-01.")]
Until = Annotated[str, option("--until", "DAY", "Up to this day, and with it.")]
Share = Annotated[
    float | None,
    typer.Option(
        "--share", metavar="PART", help="Its part of all work while others wait too. Default: 0.15.", show_default=False
    ),
]
Order = Annotated[Literal["newest", "oldest"], typer.Option("--order", help="Which day first.")]
ClearTerminal = Annotated[bool, typer.Option("--clear-terminal", help="Also what is terminal, with new attempts.")]
Again = Annotated[bool, typer.Option("--again", help="Also what is accepted already; it stays readable.")]
Watch = Annotated[bool, typer.Option("--watch", help="Wait until it ends; on a terminal, show how it goes.")]
EVERY = 1.0
"""Seconds between two looks."""
Number = Annotated[int, typer.Argument(metavar="ID", help="The backfill's number.")]
PlanOrDataset = Annotated[
    str, typer.Argument(metavar="PLAN", help="The id of a plan, its file; or a dataset, with --since and --until.")
]


def _planned(
    ops: Operator, dataset: str, since: str, until: str, customers: list[str] | None, share: float | None, order: str,
    again: bool, clear: bool,
) -> Plan:  # fmt: skip
    return ops.backfill(
        dataset,
        day("--since", since),
        day("--until", until),
        customers=customers or None,
        share=share,
        newest=order == "newest",
        again=again,
        clear_terminal=clear,
    )


@app.command()
def plan(
    dataset: Dataset, since: Since, until: Until, customer: Customers = None, share: Share = None, order: Order = "newest",
    again: Again = False, clear: ClearTerminal = False, out: Out = None, actor: Actor = None, where: Where = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Say what a backfill would extract, and keep the plan for `redrive backfill apply`. Changes nothing, records nothing.

    Exit status: 0, planned; 1, refused: another backfill has some of these; 2, a wrong option or date, no such dataset, or nobody
    knows its customers; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where, actor, app_first=True) as ops:
        made = _planned(ops, dataset, since, until, customer, share, order, again, clear)
        carried_out(ops, made, Told(None, as_json=as_json, keep=True, out=out))


@app.command()
def apply(
    name: PlanOrDataset, because: Because, since: Annotated[str | None, option("--since", "DAY", "Of a dataset.")] = None,
    until: Annotated[str | None, option("--until", "DAY", "Of a dataset.")] = None, customer: Customers = None,
    share: Share = None, order: Order = "newest", again: Again = False, clear: ClearTerminal = False, rate: Rate = None,
    canary: Canary = 0,
    halt_on: HaltOn = None, accept_drift: AcceptDrift = None, yes: Yes = False, most: Most = None, actor: Actor = None,
    where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Begin a backfill: a plan that was made, or at once a dataset with --since and --until. Workers carry it out.

    Asks as `redrive state retry` does; scripts say --yes --max N.

    Exit status: 0, begun; 1, refused, or not confirmed; 2, a wrong option, no such plan, or no terminal to confirm at; 3, the
    ledger cannot be reached or has another schema; 4, the plan has expired, or is another ledger's.
    """
    with operator(where, actor, app_first=True) as ops:
        how = Told(because, yes, most, as_json=as_json)
        if since is None and until is None:
            applied(ops, name, how, accept_drift, only="backfill", rate=rate, canary=canary, halt_on=halt_on)
        if since is None or until is None:
            raise ValueError("a dataset needs both --since and --until")
        made = _planned(ops, name, since, until, customer, share, order, again, clear)
        carried_out(ops, made, how, rate=rate, canary=canary, halt_on=halt_on)


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")] = 20,
    all_: Annotated[bool, typer.Option("--all", help="Retries, reprocessings and what schedules brought too.")] = False,
    where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """List backfills, the newest first.

    Exit status: 0, listed, also where there are none; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where, app_first=True) as ops:
        found = ops.partitions.backfills(limit=limit, acts=PARTITIONED if all_ else ("backfill",))
        if as_json:
            print_json(document(found))
            return
        out = console()
        show(
            out,
            _table(found, ops.now(), out.width) if found else Text(spelled("no backfills: `redrive backfill plan` plans one")),
        )


def _table(found: Sequence[Sweep], now: datetime, width: int) -> RenderableType:
    columns = [
        Column("id", number=True), Column("what"), Column("state"), Column("progress", leave=2), Column("done", number=True),
        Column("of", number=True), Column("begun"), Column("who", least=6, cut=True, leave=1),
        Column("because", least=14, wants=20, cut=True, leave=3),
    ]  # fmt: skip
    rows: list[Mapping[str, str | Text]] = [
        {
            "id": str(one.id), "what": one.act, "state": one.state, "progress": bar(one), "done": f"{one.made + one.skipped:,}",
            "of": f"{one.total:,}", "begun": ago(one.created_at, now), "who": one.actor, "because": one.because,
        }
        for one in found
    ]  # fmt: skip
    return fitted(columns, rows, width)


@app.command()
def status(sweep_id: Number, watch: Watch = False, where: Where = None, as_json: AsJson = False) -> None:
    """How far a backfill is, or any sweep over partitions; how long the rest takes at the pace so far; what fails.

    Exit status: 0, shown, or with --watch done; 1, there is none of that number, or with --watch it ended otherwise; 2, a wrong
    option; 3, the ledger cannot be reached or has another schema; 130, --watch was interrupted.
    """
    with operator(where, app_first=True) as ops:
        report = ops.partitions.progress(sweep_id)
        if report is None:
            complain(f"there is no backfill {sweep_id}; `redrive backfill list --all` lists them")
            raise typer.Exit(NOT_DONE)
        if watch:
            report = _watched(ops, report, quiet=as_json)
        if as_json:
            print_json(document(report))
        else:
            show(console(), _report(report))
            unmanned(ops, report.sweep)
        raise typer.Exit(NOT_DONE if watch and report.sweep.state != "done" else 0)


def _watched(ops: Operator, report: BackfillReport, *, quiet: bool) -> BackfillReport:
    """Until it ends, halts, or is paused; on a terminal one sees how it goes."""
    out = Console(stderr=True, highlight=False, emoji=False, markup=False)
    clock = clock_around()
    with (
        Live(Harmless(_report(report)), console=out, transient=True, auto_refresh=False)
        if out.is_terminal and not quiet
        else nullcontext() as live
    ):
        while report.sweep.state == "running":
            clock.sleep(EVERY)
            found = ops.partitions.progress(report.sweep.id)
            assert found is not None
            report = found
            if live is not None:
                live.update(Harmless(_report(report)), refresh=True)
    return report


def _report(report: BackfillReport) -> RenderableType:
    sweep, progress, now = report.sweep, report.progress, report.now
    made = pairs()
    made.add_row("state", sweep.state + (f": {sweep.reason}" if sweep.reason else ""))
    made.add_row("of", report.said)
    made.add_row("", _bar(report))
    ended = progress.ok + progress.failed
    parts = [
        f"{progress.done:.1%} done",
        f"ok {progress.ok:,}",
        f"failed {progress.failed:,}" + (f" ({progress.failed / ended:.2%})" if progress.failed else ""),
    ]
    parts += [f"running {progress.active:,}", f"queued {progress.queued:,}", f"to come {sweep.left:,}"]
    made.add_row("", " · ".join(parts))
    if report.left is not None:
        made.add_row("left", f"about {span(report.left.total_seconds())}, at the pace so far")
    elif sweep.state == "running" and progress.queued and not progress.untouched and not progress.active:
        made.add_row("left", spelled(f"{_waits(progress.queued)}; `redrive state failures`"))
    for one in report.paused:
        until = "until somebody says so" if one.until is None else f"and probed {ago(one.until, now)}"
        made.add_row("waits", Text(f"source {one.source} is paused by {one.actor}, {until}: {one.because}", style="yellow"))
    if progress.skips:
        made.add_row("left alone", ", ".join(f"{many:,} {why}" for why, many in progress.skips.items()))
    if report.reasons:
        made.add_row("failures", counted(report.reasons))
    made.add_row(
        "share",
        f"{progress.share:.0%} while others wait too" + ("" if sweep.rate is None else f"; at most {sweep.rate:g} in a second"),
    )
    if sweep.canary:
        made.add_row("canary", f"the first {sweep.canary:,}")
    if progress.halt_on is not None:
        made.add_row("halts", f"above {progress.halt_on:.0%} rejections")
    made.add_row("by", f"{sweep.actor}, because {sweep.because}")
    made.add_row("begun", both(sweep.created_at, now))
    if sweep.ended_at:
        made.add_row("ended", both(sweep.ended_at, now))
    return Group(heading(f"{sweep.act.capitalize()} {sweep.id}"), indented(made))


def _waits(count: int) -> str:
    return amount(count, "waits for its next attempt", "wait for their next attempt")


def _bar(report: BackfillReport) -> Text:
    width, total = 40, report.sweep.total or 1
    ok, failed = round(width * report.progress.ok / total), round(width * report.progress.failed / total)
    skipped = min(width - ok - failed, round(width * report.sweep.skipped / total))
    rest = width - ok - failed - skipped
    return Text("━" * ok, "green") + Text("━" * failed, "red") + Text("─" * skipped, "yellow") + Text("╌" * rest, "dim")


@app.command()
def pause(sweep_id: Number, because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
    """Begin nothing more of it for now; what is running goes on.

    Exit status: 0, paused; 1, it is not running; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where, actor, app_first=True) as ops:
        _said(ops.pause(sweep_id, because=because), as_json)


@app.command()
def resume(sweep_id: Number, because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
    """Go on with one that was paused, or that halted.

    Exit status: 0, it is running; 1, it has ended; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where, actor, app_first=True) as ops:
        _said(ops.resume(sweep_id, because=because), as_json)


@app.command()
def cancel(sweep_id: Number, because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
    """Begin nothing more of it, from now on; what was accepted stays, what is running may end.

    Exit status: 0, cancelled; 1, it has ended; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where, actor, app_first=True) as ops:
        _said(ops.cancel(sweep_id, because=because), as_json)


@app.command()
def share(
    sweep_id: Number, part: Annotated[float, typer.Argument(metavar="PART", help="A part of one, such as 0.3.")],
    because: Because,    actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Give it another part of all work, from the next claim on.

    Exit status: 0, done; 1, it has ended; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where, actor, app_first=True) as ops:
        sweep = ops.partitions.share(sweep_id, part, because=because)
        if as_json:
            print_json(document(sweep) | {"share": part})
        else:
            show(console(), Text(f"{sweep.act.capitalize()} {sweep.id} has {part:.0%} of all work while others wait too"))


def _said(sweep: Sweep, as_json: bool) -> None:
    if as_json:
        print_json(document(sweep))
    else:
        show(
            console(),
            Text(f"{sweep.act.capitalize()} {sweep.id} is {sweep.state}: {sweep.left:,} of {sweep.total:,} still to come"),
        )
