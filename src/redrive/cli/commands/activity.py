"""`redrive activity`: throughput, queue wait, run time and failures over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import format_duration
from ...ops.overview.activity import Activity, ActivityPoint, CauseLine, KindActivityLine
from ...ops.render import utc
from ..errors import refuse_option
from ..options import ReadOptions, Until, open_operator, option, time_range
from ..render import Column, console, count_or_dash, heading, print_json, responsive_table, show
from ..render.charts import sparkline
from ..unknown_names import unknown_kind

CHART_COLUMNS = 40
MICROS = 1_000_000
Start = Annotated[
    str, option("--since", "WHEN", "Start, such as 1h, 24h, 7d or 2026-01-31T12:30 (default: 24h)")
]
OneKind = Annotated[
    str | None, option("--kind", "NAME", "Only this job type, or dataset such as crm/orders")
]


class Measure(NamedTuple):
    """A line of the chart: its name, its value for the whole range, and its bars."""

    name: str
    total: str
    bars: str
    style: str = ""


def activity(
    *, kind: OneKind = None, since: Start = "24h", until: Until = None, options: ReadOptions
) -> None:
    """Show throughput and durations over time.

    Shows done, failed and dead attempts, the queue wait (from due to start), the run time (p50 and
    p95), the job types, and the failures by cause. Workers write their counts every 5 s. They are
    kept by the minute for 3 hours, by 10 minutes for 36 hours, and by the hour for 90 days.

    Examples:
        redrive activity
        redrive activity --since 1h --kind crm.sync
        redrive activity --since 2026-01-30 --until 2026-01-31 --json

    Exit codes:
        0: shown, also when nothing happened
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        times = time_range(since, until)
        try:
            report = ops.overview.activity(kind=kind, **times)
        except ValueError as error:
            refuse_option("--since", str(error))
        unknown = unknown_kind(ops, kind, or_dataset=True) if report.is_empty else None
    if options.as_json:
        print_json(report)
    elif report.is_empty:
        show(unknown or f"No activity between {_times(report)}.")
    else:
        show(Group(*_parts(report, console().width)))


def _times(report: Activity) -> str:
    return f"{utc(report.since)[:16]} and {utc(report.until)[:16]} UTC"


def _parts(report: Activity, width: int) -> list[RenderableType]:
    minutes = report.step / 60
    step = f"{minutes / 60:g} h" if minutes >= 60 else f"{minutes:g} min"
    title = f"{report.kind or 'All job types'}, between {_times(report)}, by {step}"
    parts: list[RenderableType] = [heading(title), _measures(report, width)]
    if report.kinds:
        parts += ["", responsive_table(_KIND_COLUMNS, report.kinds, width)]
    if report.causes:
        causes = responsive_table(_CAUSE_COLUMNS, report.causes, width)
        parts += ["", heading("Failures by cause"), causes]
    return parts


def _measures(report: Activity, width: int) -> RenderableType:
    points, total = report.points, report.total
    counts = [
        _count_measure("done", total.done, [point.done for point in points], "green"),
        _count_measure("failed", total.failed, [point.failed for point in points], "yellow"),
        _count_measure("dead", total.dead, [point.dead for point in points], "red"),
    ]
    if total.cancelled:
        counts.append(
            _count_measure("cancelled", total.cancelled, [each.cancelled for each in points])
        )
    durations = [
        _time_measure("queue wait p50", points, total, lambda point: point.wait_p50),
        _time_measure("queue wait p95", points, total, lambda point: point.wait_p95),
        _time_measure("run time p50", points, total, lambda point: point.run_p50),
        _time_measure("run time p95", points, total, lambda point: point.run_p95),
    ]
    columns: list[Column[Measure]] = [
        Column("", lambda line: line.name),
        Column("total", lambda line: line.total, is_number=True),
        Column("over time", lambda line: Text(line.bars, style=line.style), drop_order=1),
    ]
    return responsive_table(columns, [*counts, *durations], width)


def _count_measure(name: str, total: int, values: Sequence[int], style: str = "") -> Measure:
    return Measure(name, f"{total:,}", sparkline(_fit(values, sum)), style if total else "dim")


def _time_measure(
    name: str,
    points: Sequence[ActivityPoint],
    total: ActivityPoint,
    pick: Callable[[ActivityPoint], float | None],
) -> Measure:
    micros = [round((pick(point) or 0) * MICROS) for point in points]
    return Measure(name, duration(pick(total)), sparkline(_fit(micros, max)))


def duration(seconds: float | None, /) -> str:
    """Return a duration such as 8 ms or 1.5 s, or a dash."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else format_duration(seconds)


def _fit(values: Sequence[int], merge: Callable[[Sequence[int]], int]) -> list[int]:
    """Return at most `CHART_COLUMNS` values, by merging neighbours. The last ones are complete."""
    size = -(-len(values) // CHART_COLUMNS)
    first = len(values) % size
    starts = range(first, len(values), size)
    merged = [merge(values[start : start + size]) for start in starts]
    return [merge(values[:first]), *merged] if first else merged


_KIND_COLUMNS: list[Column[KindActivityLine]] = [
    Column("job type or dataset", lambda line: line.kind, min_width=14),
    Column("done", lambda line: count_or_dash(line.done), is_number=True),
    Column("failed", lambda line: count_or_dash(line.failed, "yellow"), is_number=True),
    Column("dead", lambda line: count_or_dash(line.dead, "red"), is_number=True),
    Column("cancelled", lambda line: count_or_dash(line.cancelled), is_number=True, drop_order=1),
]
_CAUSE_COLUMNS: list[Column[CauseLine]] = [
    Column("failed", lambda line: f"{line.total:,}", is_number=True),
    Column("job type", lambda line: line.kind or "others", min_width=12),
    Column(
        "over time",
        lambda line: Text(sparkline(_fit(line.counts, sum)), style="yellow"),
        drop_order=1,
    ),
    Column(
        "error",
        lambda line: "all other causes" if line.kind is None else line.signature or "(no message)",
        min_width=20,
        truncate=True,
    ),
]
