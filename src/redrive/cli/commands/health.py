"""`redrive overview`: what is seen first: is anything wrong, since when, is it growing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import format_duration, pluralise
from ...ops.defaults import QUIET
from ...ops.health.finding import Finding
from ...ops.overview.job_types import KindLine
from ...ops.overview.overview import Overview, SourceLine
from ...ops.partitions.overview import DatasetLine
from ...ops.render import ago, document, utc
from ..options import AsJson, HeartbeatTimeout, Where, operator
from ..render.output import bullets, console, heading, print_json, show
from ..render.charts import spark, twos
from ..render.suggestions import spelled, then
from ..render.table import Column, fitted

WARNING, CRITICAL = 1, 4
MOST = 40
"""Kinds that are shown on a terminal."""


def overview(
    heartbeat_timeout: HeartbeatTimeout = QUIET,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show problems, workers and queues.

    Problems come first, each with its start and its fix. Then, for each job type: queued, running,
    retrying, failed and dead jobs, and the workers online. Then, for each dataset: the state of its
    partitions of the last year. The cost does not depend on the number of jobs. `redrive doctor`
    checks every job.

    Examples:
        redrive overview
        redrive overview --ledger postgresql://app@db/shop

    Exit codes:
        0: no problems found
        1: warnings
        2: invalid option
        3: ledger not reachable, or its schema is from another version
        4: critical problems
    """
    with operator(where) as ops:
        found = ops.overview.summary(quiet=heartbeat_timeout)
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
        shown += ["", problems(found.findings, found.now)]
    if not found.kinds and not found.datasets:
        return Group(*shown, "", Text("No jobs and no partitions."))
    if found.kinds:
        shown += ["", kinds(found.kinds[:MOST], found.now, width)]
    if len(found.kinds) > MOST:
        shown.append(Text(f"and {pluralise(len(found.kinds) - MOST, 'more job type')}; --json has them all", style="dim"))
    if found.sources:
        shown += ["", _sources(found.sources, found.now, width)]
    if found.datasets:
        shown += ["", heading("Partitions"), datasets(found.datasets[:MOST], width)]
    if len(found.datasets) > MOST:
        shown.append(Text(f"and {pluralise(len(found.datasets) - MOST, 'more dataset')}; --json has them all", style="dim"))
    return Group(*shown, "", Text(found.sentence, style="dim")) if found.kinds else Group(*shown)


def problems(findings: Sequence[Finding], now: datetime | None) -> RenderableType:
    """Each problem with a sign, since when, and the fix."""
    made = bullets()
    for one in findings:
        about = "about " if one.about else ""
        since = "" if one.since is None or now is None else f" Since {about}{utc(one.since)} UTC ({ago(one.since, now)})."
        critical = one.severity == "critical"
        made.add_row(
            Text("✗" if critical else "•", style="bold red" if critical else "yellow"),
            Text(f"{one.says}.{since}"),
        )
        made.add_row("", Text(f"→ {then(spelled(one.mend))}", style="dim"))
    return Group(made, Text("✗ critical, • warning", style="dim"))


def kinds(lines: Sequence[KindLine], now: datetime, width: int) -> RenderableType:
    """A table of kinds: what matters least is left out where the terminal is narrow."""
    columns = [
        Column("job type", least=14),
        Column("queued", number=True),
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
            "job type": Text(line.name + (" (paused)" if line.parked is not None else ""), style="red" if line.parked else ""),
            "queued": _many(line.waiting),
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
        Column("gave up", number=True),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "dataset": line.name,
            "accepted": _many(line.accepted),
            "pending": _many(line.pending),
            "newer run rejected": Text(_many(line.refresh_failed), style="yellow" if line.refresh_failed else ""),
            "failed": Text(_many(line.failed), style="yellow" if line.failed else ""),
            "gave up": Text(_many(line.terminal), style="red" if line.terminal else ""),
        }
        for line in lines
    ]
    return fitted(columns, rows, width)


def _oldest(line: KindLine, now: datetime) -> str:
    if line.due_since is not None:
        return format_duration(round((now - line.due_since).total_seconds()))
    return "–" if line.next_due is None else ago(line.next_due, now)


def _many(count: int) -> str:
    return f"{count:,}" if count else "–"


def _sources(lines: Sequence[SourceLine], now: datetime, width: int) -> RenderableType:
    columns = [Column("source", least=12), Column("last event"), Column("lag", number=True)]
    rows = [
        {
            "source": line.name,
            "last event": ago(line.received_at, now),
            "lag": "–" if line.lag is None else format_duration(round(line.lag, 1)),
        }
        for line in lines
    ]
    return Group(heading("Sources"), fitted(columns, rows, width))
