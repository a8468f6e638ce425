"""`redrive backfill`: ranges of days: planned, applied, watched, steered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ....core.text import format_duration, pluralise
from ....ops.operator import Operator
from ....ops.partitions.backfill import PARTITIONED, BackfillReport
from ....ops.partitions.selection import day
from ....ops.plans.plan import Plan
from ....ops.render import document
from ....ops.sweep import Sweep
from ...apply.dead_letters import Canary, Most, Rate, Yes, counted
from ...apply.partitions import AcceptDrift, ClearTerminal, HaltOn, Told, carried_out
from ...command import Commands
from .plan import applied
from ...render.follow import follow, stopped_watching
from ...options import INTERRUPTED, NOT_DONE, Actor, AsJson, Because, Where, operator, option
from ...render.details import cut_note, indented, with_note
from ...render.moments import ago, both
from ...render.output import complain, console, heading, pairs, print_json, show
from ...render.suggestions import spelled
from ...render.table import Column, fitted
from ..sweeps import bar, unmanned
from .selection import Customers

app = Commands(help="Plan and run backfills.")
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="source/query, such as crm/orders")]
Since = Annotated[str, option("--since", "DAY", "First day, such as 2026-06-01")]
Until = Annotated[str, option("--until", "DAY", "Last day, inclusive (at most today)")]
Share = Annotated[
    float | None,
    typer.Option(
        "--share", metavar="PART", help="Share of worker capacity while other work is queued (default: 0.15)", show_default=False
    ),
]
Order = Annotated[Literal["newest", "oldest"], typer.Option("--order", help="Day to start with")]
Again = Annotated[bool, typer.Option("--again", help="Include accepted partitions, which stay readable")]
Watch = Annotated[bool, typer.Option("--watch", help="Progress until the backfill ends")]
PlanFile = Annotated[str | None, option("--out", "FILE", "File for the plan (default: kept for 30 minutes under its ID)")]
Number = Annotated[int, typer.Argument(metavar="ID", help="ID of the backfill")]
PlanOrDataset = Annotated[str, typer.Argument(metavar="PLAN", help="ID or file of a plan, or a dataset with --since and --until")]


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
    again: Again = False, clear: ClearTerminal = False, out: PlanFile = None, actor: Actor = None, where: Where = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Plan a backfill.

    Prints the partitions that the backfill would extract, and saves the plan for `redrive backfill
    apply`. Changes nothing and records nothing.

    Examples:
        redrive backfill plan crm/orders --since 2026-06-01 --until 2026-06-30
        redrive backfill plan crm/orders --since 2026-06-01 --until 2026-06-30 --customer-id acme --out plan.json

    Exit codes:
        0: planned; without an app, the plan lists customers that have no partitions so far
        1: refused, because another backfill includes some of these partitions
        2: invalid option or date, unknown dataset or customer, or no list of customers
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where, actor, app_first=True, create=True) as ops:
        made = _planned(ops, dataset, since, until, customer, share, order, again, clear)
        carried_out(ops, made, Told(None, as_json=as_json, keep=True, out=out))


@app.command()
def apply(
    name: PlanOrDataset, because: Because, since: Annotated[str | None, option("--since", "DAY", "With a dataset")] = None,
    until: Annotated[str | None, option("--until", "DAY", "With a dataset")] = None, customer: Customers = None,
    share: Share = None, order: Order = "newest", again: Again = False, clear: ClearTerminal = False, rate: Rate = None,
    canary: Canary = 0,
    halt_on: HaltOn = None, accept_drift: AcceptDrift = None, yes: Yes = False, most: Most = None, actor: Actor = None,
    where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Start a backfill.

    Starts a saved plan, or a dataset with --since and --until. Workers extract the partitions.
    Confirmation works as in `redrive state retry`.

    Examples:
        redrive backfill apply PLAN --because "new customer"
        redrive backfill apply crm/orders --since 2026-06-01 --until 2026-06-30 --yes --max 500 --because "new customer"

    Exit codes:
        0: started
        1: refused, or not confirmed
        2: invalid option, unknown plan or customer, or no terminal for the confirmation
        3: ledger not reachable, or its schema is from another version
        4: the plan has expired, or is for another ledger
    """
    with operator(where, actor, app_first=True, create=True) as ops:
        how = Told(because, yes, most, as_json=as_json)
        if since is None and until is None:
            applied(ops, name, how, accept_drift, only="backfill", rate=rate, canary=canary, halt_on=halt_on)
        if since is None or until is None:
            raise ValueError("dataset: needs both --since and --until")
        made = _planned(ops, name, since, until, customer, share, order, again, clear)
        carried_out(ops, made, how, rate=rate, canary=canary, halt_on=halt_on)


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of backfills")] = 20,
    all_: Annotated[bool, typer.Option("--all", help="Include retries, reprocessing and scheduled runs")] = False,
    where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """List backfills.

    Newest first.

    Examples:
        redrive backfill list
        redrive backfill list --all

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where, app_first=True) as ops:
        acts = PARTITIONED if all_ else ("backfill",)
        found = ops.partitions.backfills(limit=limit, acts=acts)
        if as_json:
            print_json(document(found))
            return
        out = console()
        if not found:
            show(out, Text(spelled("No backfills. Plan one with `redrive backfill plan DATASET --since DAY --until DAY`.")))
            return
        total = ops.partitions.count_backfills(acts=acts) if len(found) == limit else None
        show(out, with_note(_table(found, ops.now(), out.width), cut_note(len(found), total)))


def _table(found: Sequence[Sweep], now: datetime, width: int) -> RenderableType:
    columns = [
        Column("id", number=True), Column("action"), Column("state"), Column("progress", leave=2),
        Column("processed", number=True), Column("total", number=True), Column("started"),
        Column("by", least=6, cut=True, leave=1),
        Column("because", least=14, wants=20, cut=True, leave=3),
    ]  # fmt: skip
    rows: list[Mapping[str, str | Text]] = [
        {
            "id": str(one.id), "action": one.act, "state": one.state, "progress": bar(one),
            "processed": f"{one.made + one.skipped:,}", "total": f"{one.total:,}",
            "started": ago(one.created_at, now), "by": one.actor, "because": one.because,
        }
        for one in found
    ]  # fmt: skip
    return fitted(columns, rows, width)


@app.command()
def status(sweep_id: Number, watch: Watch = False, where: Where = None, as_json: AsJson = False) -> None:
    """Show the progress of a backfill.

    Shows progress, failures and the time left. Also takes the number of a retry, a reprocessing or
    a revalidation. In a pipe or a file, --watch prints a line for each change, and with --json each
    line is one document. Ctrl+C ends only --watch, and the backfill continues.

    Examples:
        redrive backfill status 7
        redrive backfill status 7 --watch

    Exit codes:
        0: shown; with --watch, done
        1: no backfill with this ID; with --watch, not ended as done
        2: invalid option
        3: ledger not reachable, or its schema is from another version
        130: --watch was interrupted; the backfill continues
    """
    with operator(where, app_first=True) as ops:
        _must_exist(ops, sweep_id)
        report = ops.partitions.progress(sweep_id)
        assert report is not None
        interrupted = False
        if watch:
            report, interrupted = _watched(ops, report, as_json=as_json)
        if not as_json:
            show(console(), _report(report))
            unmanned(ops, report.sweep)
        elif not watch:
            print_json(document(report))
        if interrupted:
            stopped_watching(
                f"{report.sweep.act} {sweep_id}",
                f"redrive backfill status {sweep_id} --watch",
                f'to stop it: `redrive backfill pause {sweep_id} --because "..."`',
            )
            raise typer.Exit(INTERRUPTED)
        raise typer.Exit(NOT_DONE if watch and report.sweep.state != "done" else 0)


def _watched(ops: Operator, report: BackfillReport, *, as_json: bool) -> tuple[BackfillReport, bool]:
    return follow(
        report,
        lambda: ops.partitions.progress(report.sweep.id),
        running=lambda seen: seen.sweep.state == "running",
        drawn=lambda seen, _width: _report(seen),
        line=_line,
        as_json=as_json,
    )


def _line(report: BackfillReport) -> str:
    progress = report.progress
    counts = f"{progress.ok:,} accepted, {progress.failed:,} failed, {progress.active:,} running, {progress.queued:,} queued"
    return f"{report.sweep.state}; {counts}, {report.sweep.left:,} not started"


def _report(report: BackfillReport) -> RenderableType:
    sweep, progress, now = report.sweep, report.progress, report.now
    made = pairs()
    made.add_row("state", sweep.state + (f": {sweep.reason}" if sweep.reason else ""))
    made.add_row("scope", report.said)
    made.add_row("", _bar(report))
    ended = progress.ok + progress.failed
    parts = [
        f"{progress.done:.1%} done",
        f"accepted {progress.ok:,}",
        f"failed {progress.failed:,}" + (f" ({progress.failed / ended:.2%})" if progress.failed else ""),
    ]
    parts += [f"running {progress.active:,}", f"queued {progress.queued:,}", f"not started {sweep.left:,}"]
    made.add_row("", " · ".join(parts))
    if report.left is not None:
        made.add_row("time left", f"about {format_duration(report.left.total_seconds())}")
    elif sweep.state == "running" and progress.queued and not progress.untouched and not progress.active:
        see = "; see `redrive state failures`" if report.reasons else ""  # those of an outage are not failures
        made.add_row("time left", spelled(f"unknown: {_waits(progress.queued)}{see}"))
    for one in report.paused:
        until = "until it is unpaused" if one.until is None else f"probed {ago(one.until, now)}"
        made.add_row("paused", Text(f"source {one.source}, by {one.actor}, {until} ({one.because})", style="yellow"))
    if progress.skips:
        made.add_row("skipped", ", ".join(f"{many:,} {why}" for why, many in progress.skips.items()))
    if report.reasons:
        made.add_row("failures", counted(report.reasons))
    made.add_row(
        "share",
        f"{progress.share:.0%} while other work is queued" + ("" if sweep.rate is None else f", at most {sweep.rate:g}/s"),
    )
    if sweep.canary:
        made.add_row("canary", f"the first {sweep.canary:,}")
    if progress.halt_on is not None:
        made.add_row("halt on", f"more than {progress.halt_on:.0%} rejected")
    made.add_row("by", sweep.actor)
    made.add_row("because", sweep.because)
    made.add_row("started", both(sweep.created_at, now))
    if sweep.ended_at:
        made.add_row("ended", both(sweep.ended_at, now))
    return Group(heading(f"{sweep.act.capitalize()} {sweep.id}"), indented(made))


def _waits(count: int) -> str:
    return pluralise(count, "partition waits", "partitions wait") + " for a retry"


def _bar(report: BackfillReport) -> Text:
    width, total = 40, report.sweep.total or 1
    ok, failed = round(width * report.progress.ok / total), round(width * report.progress.failed / total)
    skipped = min(width - ok - failed, round(width * report.sweep.skipped / total))
    rest = width - ok - failed - skipped
    return Text("━" * ok, "green") + Text("━" * failed, "red") + Text("─" * skipped, "yellow") + Text("╌" * rest, "dim")


@app.command()
def pause(sweep_id: Number, because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
    """Pause a backfill.

    No further partition starts. Running partitions continue.

    Examples:
        redrive backfill pause 7 --because "source is slow"

    Exit codes:
        0: paused
        1: not running, or no backfill with this ID
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where, actor, app_first=True) as ops:
        _must_exist(ops, sweep_id)
        _said(ops.pause(sweep_id, because=because), as_json)


@app.command()
def resume(sweep_id: Number, because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
    """Resume a backfill.

    Resumes a backfill that was paused or halted.

    Examples:
        redrive backfill resume 7 --because "source is back"

    Exit codes:
        0: running
        1: already ended, or no backfill with this ID
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where, actor, app_first=True) as ops:
        _must_exist(ops, sweep_id)
        _said(ops.resume(sweep_id, because=because), as_json)


@app.command()
def cancel(sweep_id: Number, because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
    """Cancel the rest of a backfill.

    Accepted partitions stay. Running partitions continue.

    Examples:
        redrive backfill cancel 7 --because "wrong range"

    Exit codes:
        0: cancelled
        1: already ended, or no backfill with this ID
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where, actor, app_first=True) as ops:
        _must_exist(ops, sweep_id)
        _said(ops.cancel(sweep_id, because=because), as_json)


@app.command()
def share(
    sweep_id: Number, part: Annotated[float, typer.Argument(metavar="PART", help="Share of capacity, such as 0.3")],
    because: Because,    actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Change a backfill's share of capacity.

    Takes effect at the next claim of a worker.

    Examples:
        redrive backfill share 7 0.3 --because "finish today"

    Exit codes:
        0: changed
        1: already ended, or no backfill with this ID
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where, actor, app_first=True) as ops:
        _must_exist(ops, sweep_id)
        sweep = ops.partitions.share(sweep_id, part, because=because)
        if as_json:
            print_json(document(sweep) | {"share": part})
        else:
            show(console(), Text(f"{sweep.act.capitalize()} {sweep.id}: share {part:.0%} while other work is queued"))


def _must_exist(ops: Operator, sweep_id: int) -> None:
    if ops.sweep(sweep_id, limit=1) is None:
        complain(f"backfill {sweep_id}: not found; `redrive backfill list --all` lists all")
        raise typer.Exit(NOT_DONE)


def _said(sweep: Sweep, as_json: bool) -> None:
    if as_json:
        print_json(document(sweep))
    else:
        show(
            console(),
            Text(f"{sweep.act.capitalize()} {sweep.id} is {sweep.state}: {sweep.left:,} of {sweep.total:,} not started"),
        )
