"""`redrive overview`: what is seen first: is anything wrong, since when, is it growing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ..core.amount import amount
from ..core.span import span
from ..ops.defaults import QUIET
from ..ops.document import document
from ..ops.finding import Finding
from ..ops.moments import ago, utc
from ..ops.overview import Overview, SourceLine
from ..ops.partition_standing import DatasetLine
from ..ops.standing import KindLine
from .fit import Column, fitted
from .followup import spelled, then
from .options import AsJson, Where, operator
from .output import bullets, console, heading, print_json, show
from .spark import spark, twos

WARNING, CRITICAL = 1, 4
MOST = 40
"""Kinds that are shown on a terminal."""


def overview(
    quiet: Annotated[
        float, typer.Option("--quiet", min=1, metavar="SECONDS", help="How long a worker may be silent before it counts as gone.")
    ] = QUIET,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show what is going on, and what is wrong: since when, and whether it grows.

    For each kind: what waits and for how long, runs, waits to be tried again, failed and died; and who works on it. For each
    dataset: how its partitions of the last year stand. Takes as long with a million jobs as with a thousand; `redrive doctor`
    looks at every one.

    Exit status: 0, all is well; 1, warnings; 4, something critical; 2, a wrong option; 3, the ledger cannot be reached or has
    another schema.
    """
    with operator(where) as ops:
        found = ops.overview(quiet=quiet)
    if as_json:
        print_json(document(found) | {"severity": found.severity, "says": found.says})
    else:
        out = console()
        show(out, _overview(found, out.width))
    raise typer.Exit({None: 0, "warning": WARNING, "critical": CRITICAL}[found.severity])


def _overview(found: Overview, width: int) -> Group:
    style = {None: "green" if found.alive else "yellow", "warning": "yellow", "critical": "bold red"}[found.severity]
    shown: list[RenderableType] = [
        Text(f"{found.url}, {utc(found.now)} UTC", style="dim"),
        Text(f"{found.says}.", style=style),
    ]
    if found.findings:
        shown += ["", wrong(found.findings, found.now)]
    if not found.kinds and not found.datasets:
        return Group(*shown, "", Text("Nothing was submitted yet."))
    if found.kinds:
        shown += ["", kinds(found.kinds[:MOST], found.now, width)]
    if len(found.kinds) > MOST:
        shown.append(Text(f"and {amount(len(found.kinds) - MOST, 'more kind')}; --json has them all", style="dim"))
    if found.sources:
        shown += ["", _sources(found.sources, found.now, width)]
    if found.datasets:
        shown += ["", heading("Partitions"), datasets(found.datasets[:MOST], width)]
    if len(found.datasets) > MOST:
        shown.append(Text(f"and {amount(len(found.datasets) - MOST, 'more dataset')}; --json has them all", style="dim"))
    return Group(*shown, "", Text(found.sentence, style="dim")) if found.kinds else Group(*shown)


def wrong(findings: Sequence[Finding], now: datetime) -> RenderableType:
    """What is wrong: a sign, a sentence, since when, and what to do."""
    made = bullets()
    for one in findings:
        about = "about " if one.about else ""
        since = "" if one.since is None else f" Since {about}{utc(one.since)} UTC, {ago(one.since, now)}."
        critical = one.severity == "critical"
        made.add_row(
            Text("✗" if critical else "•", style="bold red" if critical else "yellow"),
            Text(f"{one.says[0].upper()}{one.says[1:]}.{since}"),
        )
        made.add_row("", Text(f"→ {then(spelled(one.mend))}", style="dim"))
    return made


def kinds(lines: Sequence[KindLine], now: datetime, width: int) -> RenderableType:
    """A table of kinds: what matters least is left out where the terminal is narrow."""
    columns = [
        Column("kind", least=14),
        Column("waiting", number=True),
        Column("oldest", number=True),
        Column("running", number=True),
        Column("retry", number=True),
        Column("blocked", number=True, leave=3),
        Column("dead", number=True),
        Column("failed 1h", number=True, leave=1),
        Column("24 h", leave=2),
        Column("workers", number=True, leave=4),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "kind": Text(line.name + (" (parked)" if line.parked is not None else ""), style="red" if line.parked else ""),
            "waiting": _many(line.waiting),
            "oldest": _oldest(line, now),
            "running": _many(line.running),
            "retry": f"{line.retry_wait:,}{'+' if line.retry_more else ''}" if line.retry_wait else "–",
            "blocked": _many(line.blocked),
            "dead": Text(_many(line.dead), style="red" if line.dead else ""),
            "failed 1h": Text(_many(line.failed.hour), style="yellow" if line.failed.growing else ""),
            "24 h": Text(spark(twos(line.failed.hours)), style="yellow" if line.failed.hour else "dim"),
            "workers": str(line.workers) if line.workers else Text("none", style="yellow" if line.waiting else "dim"),
        }
        for line in lines
    ]
    return fitted(columns, rows, width)


def datasets(lines: Sequence[DatasetLine], width: int) -> RenderableType:
    """A table of datasets: how their partitions of the last year stand."""
    columns = [
        Column("dataset", least=14),
        Column("accepted", number=True, leave=1),
        Column("pending", number=True),
        Column("newer run rejected", number=True, leave=2),
        Column("failed", number=True),
        Column("terminal", number=True),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "dataset": line.name,
            "accepted": _many(line.accepted),
            "pending": _many(line.pending),
            "newer run rejected": Text(_many(line.refresh_failed), style="yellow" if line.refresh_failed else ""),
            "failed": Text(_many(line.failed), style="yellow" if line.failed else ""),
            "terminal": Text(_many(line.terminal), style="red" if line.terminal else ""),
        }
        for line in lines
    ]
    return fitted(columns, rows, width)


def _oldest(line: KindLine, now: datetime) -> str:
    if line.due_since is not None:
        return span(round((now - line.due_since).total_seconds()))
    return "–" if line.next_due is None else ago(line.next_due, now)


def _many(count: int) -> str:
    return f"{count:,}" if count else "–"


def _sources(lines: Sequence[SourceLine], now: datetime, width: int) -> RenderableType:
    columns = [Column("source", least=12), Column("last event"), Column("lag", number=True)]
    rows = [
        {
            "source": line.name,
            "last event": ago(line.received_at, now),
            "lag": "–" if line.lag is None else span(round(line.lag, 1)),
        }
        for line in lines
    ]
    return Group(heading("Sources"), fitted(columns, rows, width))
