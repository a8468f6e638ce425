"""`redrive overview` and `redrive doctor`: the problems of a ledger, its workers and its queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ....core.text import format_duration, pluralise
from ....ops.context import QUIET
from ....ops.health.doctor import examine
from ....ops.health.overview_rules import Finding, Health
from ....ops.overview.job_types import KindLine
from ....ops.overview.overview import EngineLine, Overview, SourceLine
from ....ops.partitions.overview import DatasetLine
from ....ops.render import ago, document, utc
from ...errors import exit_on_error
from ...options import AppArgument, HeartbeatTimeout, ReadOptions, choose_target, open_operator
from ...render import (
    Column,
    bullets,
    console,
    count_or_dash,
    dim,
    heading,
    print_json,
    responsive_table,
    show,
)
from ...render.charts import pair_sums, sparkline
from ...suggestions import complete_command, expand_commands

EXIT_CODES = {None: 0, "warning": 1, "critical": 4}
"""Exit codes by severity."""
MAX_ROWS = 40
"""Job types and datasets that are printed. JSON has all of them."""
SAMPLED_CHECK = "raw data (up to 100 runs of each dataset)"


def overview(*, heartbeat_timeout: HeartbeatTimeout = QUIET, options: ReadOptions) -> None:
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
    with open_operator(options) as ops:
        report = ops.overview.summary(quiet=heartbeat_timeout)
    if options.as_json:
        print_json(document(report) | {"severity": report.severity, "says": report.says})
    else:
        show(_overview(report, console().width))
    raise typer.Exit(EXIT_CODES[report.severity])


def _overview(report: Overview, width: int) -> Group:
    styles = {
        None: "green" if report.alive else "yellow",
        "warning": "yellow",
        "critical": "bold red",
    }
    parts: list[RenderableType] = [
        dim(f"{report.url}, {utc(report.now)} UTC"),
        Text(f"{report.says}.", style=styles[report.severity]),
    ]
    if report.findings:
        parts += ["", findings_list(report.findings, report.now)]
    if not (report.kinds or report.datasets or report.pending_items or report.engines):
        parts += ["", "No jobs, partitions or pending batch items."]
    if report.kinds:
        columns = _kind_columns(report)
        parts += ["", responsive_table(columns, report.kinds[:MAX_ROWS], width)]
        parts += _more(len(report.kinds), "more job type")
    if report.sources and (report.kinds or report.datasets):
        sources = responsive_table(_source_columns(report.now), report.sources, width)
        parts += ["", heading("Sources"), sources]
    if report.engines:
        engines = responsive_table(_engine_columns(report.now), report.engines, width)
        parts += ["", heading("Engines"), engines]
    if report.datasets:
        datasets = responsive_table(DATASET_COLUMNS, report.datasets[:MAX_ROWS], width)
        parts += ["", heading("Partitions"), datasets]
        parts += _more(len(report.datasets), "more dataset")
    if report.pending_items:
        status = expand_commands("`redrive batch status`")
        parts += ["", f"Batches: {report.pending_items_text}; see {status}."]
    if report.kinds:
        parts += ["", dim(report.sentence)]
    return Group(*parts)


def _more(count: int, name: str) -> list[RenderableType]:
    hidden = count - MAX_ROWS
    return [dim(f"and {pluralise(hidden, name)}; --json has them all")] if hidden > 0 else []


def findings_list(findings: Sequence[Finding], now: datetime | None) -> Group:
    """Return each problem with its severity, its start and its fix."""
    items: list[tuple[RenderableType, RenderableType]] = []
    for finding in findings:
        is_critical = finding.severity == "critical"
        sign = Text("✗", style="bold red") if is_critical else Text("•", style="yellow")
        items += [
            (sign, Text(f"{finding.says}.{_since(finding, now)}")),
            ("", dim(f"→ {complete_command(expand_commands(finding.mend))}")),
        ]
    return Group(bullets(items), dim("✗ critical, • warning"))


def _since(finding: Finding, now: datetime | None) -> str:
    if finding.since is None or now is None:
        return ""
    about = "about " if finding.about else ""
    return f" Since {about}{utc(finding.since)} UTC ({ago(finding.since, now)})."


def _kind_columns(report: Overview) -> list[Column[KindLine]]:
    """Return the columns. Those of waiting and cancelled jobs are left out if there are none."""
    now = report.now
    waiting: Column[KindLine] = Column(
        "waiting", lambda line: count_or_dash(line.suspended), is_number=True, drop_order=6
    )
    cancelled: Column[KindLine] = Column(
        "cancelled", lambda line: count_or_dash(line.cancelled), is_number=True, drop_order=5
    )

    def retries(line: KindLine) -> str | None:
        return f"{line.retry_wait:,}{'+' if line.retry_more else ''}" if line.retry_wait else None

    return [
        Column("job type", _kind_name, min_width=14),
        Column("queued", _first_attempts, is_number=True),
        Column("oldest", lambda line: _oldest(line, now), is_number=True),
        Column("running", lambda line: count_or_dash(line.running), is_number=True),
        Column("retry", retries, is_number=True),
        *([waiting] if any(line.suspended for line in report.kinds) else []),
        Column("blocked", lambda line: count_or_dash(line.blocked), is_number=True, drop_order=3),
        Column("dead", lambda line: count_or_dash(line.dead, "red"), is_number=True),
        *([cancelled] if any(line.cancelled for line in report.kinds) else []),
        Column("failed 1h", _failed_last_hour, is_number=True, drop_order=1),
        Column("24 h", _failed_last_day, drop_order=2),
        Column("workers", _workers, is_number=True, drop_order=4),
    ]


def _first_attempts(line: KindLine) -> str | Text:
    """Return the queued jobs without the retries, which have their own column."""
    if line.retry_more and line.first_attempts:
        return f"≤ {line.first_attempts:,}"
    return count_or_dash(line.first_attempts)


def _kind_name(line: KindLine) -> Text:
    if line.parked is not None:
        return Text(f"{line.name} (paused: outage)", style="red")
    if line.paused is not None:
        return Text(f"{line.name} (paused by hand)", style="yellow")
    return Text(line.name)


def _oldest(line: KindLine, now: datetime) -> str:
    if line.due_since is not None:
        return format_duration(round((now - line.due_since).total_seconds()))
    return ago(line.next_due, now)


def _failed_last_hour(line: KindLine) -> Text:
    return count_or_dash(line.failed.hour, "yellow" if line.failed.is_growing else "")


def _failed_last_day(line: KindLine) -> Text:
    bars = sparkline(pair_sums(line.failed.hours))
    return Text(bars, style="yellow" if line.failed.hour else "dim")


def _workers(line: KindLine) -> str | Text:
    none = Text("none", style="yellow" if line.waiting else "dim")
    return str(line.workers) if line.workers else none


def _source_columns(now: datetime) -> list[Column[SourceLine]]:
    def lag(line: SourceLine) -> str | None:
        return None if line.lag is None else format_duration(round(line.lag, 1))

    return [
        Column("source", lambda line: line.name, min_width=12),
        Column("last event", lambda line: ago(line.received_at, now)),
        Column("lag", lag, is_number=True),
    ]


def _engine_columns(now: datetime) -> list[Column[EngineLine]]:
    return [
        Column("engine", lambda line: line.name, min_width=12),
        Column("namespace", lambda line: line.namespace, drop_order=4),
        Column("task queue", lambda line: line.queue, drop_order=3),
        Column("open", lambda line: f"{line.open:,}", is_number=True),
        Column("done", lambda line: f"{line.done:,}", is_number=True),
        Column("failed", lambda line: f"{line.failed:,}", is_number=True),
        Column("cancelled", lambda line: f"{line.cancelled:,}", is_number=True, drop_order=5),
        Column("counted", lambda line: ago(line.at, now), drop_order=6),
    ]


DATASET_COLUMNS: list[Column[DatasetLine]] = [
    Column("dataset", lambda line: line.name, min_width=14),
    Column("queued", lambda line: count_or_dash(line.queued), is_number=True, drop_order=3),
    Column("running", lambda line: count_or_dash(line.running), is_number=True, drop_order=3),
    Column("accepted", lambda line: count_or_dash(line.accepted), is_number=True, drop_order=1),
    Column("pending", lambda line: count_or_dash(line.pending), is_number=True),
    Column(
        "newer run rejected",
        lambda line: count_or_dash(line.refresh_failed, "yellow"),
        is_number=True,
        drop_order=2,
    ),
    Column("failed", lambda line: count_or_dash(line.failed, "yellow"), is_number=True),
    Column("gave up", lambda line: count_or_dash(line.terminal, "red"), is_number=True),
]


def doctor(
    *, app: AppArgument = None, heartbeat_timeout: HeartbeatTimeout = QUIET, options: ReadOptions
) -> None:
    """Check a ledger for problems.

    Checks the schema, expired leases, abandoned idempotency records, counts, the database's clock,
    workers, dead letters, partitions and the audit log. Each problem is printed with its count, its
    start and its fix. Reads every job and changes nothing.

    Examples:
        redrive doctor
        redrive doctor --ledger shop:app --json

    Exit codes:
        0: no problems found
        1: warnings
        2: invalid option
        3: ledger not reachable
        4: critical problems: work is stopped, lost or not verifiable
    """
    target = choose_target(app, options.target)
    with exit_on_error():
        health = examine(target, quiet=heartbeat_timeout)
    if options.as_json:
        print_json(document(health) | {"severity": health.severity})
    else:
        show(health_view(health))
    raise typer.Exit(EXIT_CODES[health.severity])


def health_view(health: Health, /) -> Group:
    """Return the findings of the doctor, and what it checked."""
    parts: list[RenderableType] = [dim(health.url)]
    if health.balance is not None and not health.balance.startswith("0 submitted"):
        parts.append(Text(health.balance))
    if health.no_worker is not None:
        parts.append(Text(f"{health.no_worker}.", style="yellow"))
    names = [SAMPLED_CHECK if name == "raw data" else name for name in health.checked]
    checked = dim(f"Checked: {', '.join(names)}.")
    if not health.findings:
        return Group(*parts, Text("No problems found.", style="green"), checked)
    count = heading(f"{pluralise(len(health.findings), 'problem')} found:")
    return Group(*parts, "", count, findings_list(health.findings, health.now), "", checked)
