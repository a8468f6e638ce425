"""Charts as SVG: bars for counts, lines for durations. Everything is escaped.

The server draws them, so a page needs no JavaScript and the content security policy stays strict.
Colours come from the style sheet. A chart is as wide as its card, and its text stays readable from
a phone to a wide screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil, log10
from typing import Literal, TypeAlias

from markupsafe import Markup, escape

from ...core.text import pluralise
from ...ops.overview.activity import Activity

WIDTH, HEIGHT = 480, 190
LEFT, RIGHT, TOP, BOTTOM = 54, 6, 10, 24
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
DASH_WIDTH = 4
MAX_TICKS = 4
MAX_LABELS = 6
MAX_HOVER_CHARS = 24
"""Of the name of a series in a title. The legend and the table have the whole name."""
LABEL_MINUTES = (
    *(5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 720, 1440),
    *(1440 * days for days in (2, 7, 14, 30)),
)
"""Minutes between two labels of the time axis."""
DURATION_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))
NICE = (1, 2, 5, 10)
CAUSE_CSS = ("c1", "c2", "c3", "c4", "c5", "c6")
OTHER_CSS = "c0"
NAMES = ("p95", "p50")
Shape: TypeAlias = Literal["bars", "lines"]


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one colour. Immutable."""

    name: str
    css: str
    """Class of its colour in the style sheet."""
    values: Sequence[float | None]
    url: str | None = None
    """Where the legend links to."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its title, unit and series. Immutable."""

    title: str
    unit: str
    shape: Shape
    times: Sequence[datetime]
    step: float
    """Seconds between two times."""
    series: Sequence[Series]
    summary: str
    """What it shows, in words, for screen readers."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(value for series in self.series for value in series.values)

    @property
    def svg(self) -> Markup:
        """The drawing."""
        return draw(self)


# --- Which charts


def activity_charts(report: Activity, cause_url: Callable[[str, str], str], /) -> list[Chart]:
    """Return the four charts of a range. `cause_url` links an error group to its page."""
    return [throughput_chart(report), *duration_charts(report), cause_chart(report, cause_url)]


def throughput_chart(report: Activity, /) -> Chart:
    """Return the ended attempts by outcome."""
    points, total = report.points, report.total
    series = [
        Series("Done", "good", [point.done for point in points]),
        Series("Failed", "warn", [point.failed for point in points]),
        Series("Dead", "bad", [point.dead for point in points]),
    ]
    if total.cancelled:
        series.append(Series("Cancelled", "calm", [point.cancelled for point in points]))
    words = f"{total.done:,} done, {total.failed:,} failed, {total.dead:,} dead"
    if total.cancelled:
        words += f", {total.cancelled:,} cancelled"
    unit = f"ended attempts per {step_length(report.step)}"
    return _chart(report, "Throughput", unit, "bars", series, words)


def duration_charts(report: Activity, /) -> list[Chart]:
    """Return queue wait and run time."""
    points, total = report.points, report.total
    waits = ([each.wait_p95 for each in points], [each.wait_p50 for each in points])
    runs = ([each.run_p95 for each in points], [each.run_p50 for each in points])
    rows = (
        ("Queue wait", "from due to start", waits, total.wait_p50, total.wait_p95),
        ("Run time", "of one attempt", runs, total.run_p50, total.run_p95),
    )
    return [
        _chart(
            report, title, unit, "lines", list(map(Series, NAMES, NAMES, values)), _in_words(*whole)
        )
        for title, unit, values, *whole in rows
    ]


def cause_chart(report: Activity, cause_url: Callable[[str, str], str], /) -> Chart:
    """Return the failed attempts by error group."""
    series = []
    for place, line in enumerate(report.causes):
        if line.kind is None or line.signature is None:
            series.append(Series("All other causes", OTHER_CSS, line.counts))
            continue
        prefix = "" if report.kind is not None else f"{line.kind}: "
        name = f"{prefix}{line.signature or '(no message)'}"
        url = cause_url(line.kind, line.signature)
        series.append(Series(name, CAUSE_CSS[place], line.counts, url))
    total = sum(line.total for line in report.causes)
    return Chart(
        title="Failures by cause",
        unit=f"failed attempts per {step_length(report.cause_step)}",
        shape="bars",
        times=report.cause_times,
        step=report.cause_step,
        series=series,
        summary=f"{pluralise(total, 'failed attempt')}, {pluralise(len(series), 'cause')}",
    )


def _chart(
    report: Activity, title: str, unit: str, shape: Shape, series: Sequence[Series], words: str
) -> Chart:
    times = [point.at for point in report.points]
    return Chart(title, unit, shape, times, report.step, series, words)


def _in_words(p50: float | None, p95: float | None) -> str:
    return f"p50 {short_duration(p50)}, p95 {short_duration(p95)} in the whole range"


@lru_cache(maxsize=1_000)  # a percentile is the middle of one of 144 buckets
def short_duration(seconds: float | None, /) -> str:
    """Return a duration such as 8.2 ms, 1.5 s or 5 min, or a dash."""
    if seconds is None:
        return "–"
    size, name = next((unit for unit in DURATION_UNITS if seconds >= unit[0]), DURATION_UNITS[-1])
    return f"{seconds / size:.3g} {name}"


# --- The charts as tables. A loop in a template takes three times as long.


def point_rows(report: Activity, /) -> Markup:
    """Return the rows of all steps with an attempt, the latest first."""
    rows = []
    for point in reversed(report.points):
        if point.ended:
            counts = (point.done, point.failed, point.dead, point.cancelled)
            durations = (point.wait_p50, point.wait_p95, point.run_p50, point.run_p95)
            shown = counts if report.total.cancelled else counts[:3]
            cells = [*(f"{count:,}" for count in shown), *map(short_duration, durations)]
            rows.append(_table_row(step_name(point.at, report.step), cells))
    return Markup("".join(rows))  # noqa: S704  # digits and our own words


def cause_rows(chart: Chart, /) -> Markup:
    """Return the rows of all steps with a failure, the latest first."""
    rows = [
        _table_row(step_name(time, chart.step), [f"{count:,}" for count in counts])
        for time, counts in zip(chart.times, _columns(chart), strict=False)
        if any(counts)
    ]
    return Markup("".join(rows[::-1]))  # noqa: S704  # digits


def _table_row(name: str, cells: Sequence[str]) -> str:
    return f'<tr><th scope="row">{name}</th><td>{"</td><td>".join(cells)}</td></tr>\n'


# --- Drawing


def draw(chart: Chart, /) -> Markup:
    """Return the SVG of a chart."""
    if chart.shape == "bars":
        totals = [sum(each or 0 for each in values) for values in _columns(chart)]
        highest, ticks = count_ticks(max(totals, default=0))
        paths = _bars(chart, highest)
    else:
        values = [value or 0.0 for series in chart.series for value in series.values]
        highest, ticks = duration_ticks(max(values, default=0.0))
        paths = _lines(chart, highest)
    spoken = escape(f"{chart.title}, {chart.unit}: {chart.summary}")
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{spoken}">',
        *(_y_tick(value / highest, label) for value, label in ticks),
        *(_x_label(place, label, chart) for place, label in time_labels(chart.times, chart.step)),
        *paths,
        *_hover_titles(chart),
        "</svg>",
    ]
    return Markup("".join(parts))  # noqa: S704  # escaped above


def _columns(chart: Chart) -> list[tuple[float | None, ...]]:
    return list(zip(*(series.values for series in chart.series), strict=True))


def count_ticks(highest: float, /) -> tuple[float, list[tuple[float, str]]]:
    """Return the end of a scale of counts, and its ticks with their labels."""
    step = max(1.0, _nice_step(max(highest, 1) / MAX_TICKS))
    count = max(1, ceil(max(highest, 1) / step))
    return count * step, [(step * each, _short_count(step * each)) for each in range(count + 1)]


def duration_ticks(highest: float, /) -> tuple[float, list[tuple[float, str]]]:
    """Return the end of a scale of seconds, and its ticks with their labels."""
    highest = highest or 0.001
    size, name = next((unit for unit in DURATION_UNITS if highest >= unit[0]), DURATION_UNITS[-1])
    step = _nice_step(highest / size / MAX_TICKS)
    count = max(1, ceil(highest / size / step - 1e-9))
    ticks = [(step * size * each, f"{step * each:g} {name}") for each in range(count + 1)]
    return count * step * size, [(0.0, "0"), *ticks[1:]]


def _nice_step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten that is at least this."""
    power = 10.0 ** int(log10(least) // 1)
    return next((nice * power for nice in NICE if nice * power >= least * 0.999), 10 * power)


def _short_count(count: float) -> str:
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:g}{name}"
    return f"{count:g}"


def time_labels(times: Sequence[datetime], step: float, /) -> list[tuple[int, str]]:
    """Return the places on the time axis that have a label, in UTC."""
    if not times:
        return []
    minutes = len(times) * step / 60
    # Labels are whole steps apart, so that their distances are equal.
    whole = [each for each in LABEL_MINUTES if each * 60 % step == 0]
    every = next((each for each in whole if minutes / each <= MAX_LABELS), LABEL_MINUTES[-1])
    labels = []
    for place, time in enumerate(times):
        minute = int(time.timestamp()) // 60
        # The first step that reaches a round time. Steps need not begin at one.
        if minute % every < step / 60:
            labels.append((place, f"{time:%H:%M}" if every < 1440 else f"{time:%b} {time.day}"))
    return labels


def _x(chart: Chart, place: float) -> float:
    return LEFT + PLOT_WIDTH * place / len(chart.times)


def _y(share: float) -> float:
    return round(TOP + PLOT_HEIGHT * (1 - share), 1)


def _y_tick(share: float, label: str) -> str:
    height = _y(share)
    css = "axis" if share == 0 else "grid"
    line = f'<path class="{css}" d="M{LEFT} {height:g}H{WIDTH - RIGHT}"/>'
    return f'{line}<text class="y" x="{LEFT - 6}" y="{height + 4:g}">{label}</text>'


def _x_label(place: int, label: str, chart: Chart) -> str:
    x = min(max(_x(chart, place), LEFT + 12), WIDTH - RIGHT - 16)
    return f'<text class="x" x="{x:.0f}" y="{HEIGHT - 6}">{label}</text>'


def _bars(chart: Chart, highest: float) -> list[str]:
    """Return a path for each series, stacked from the first one up. The smallest bar is visible."""
    width = PLOT_WIDTH / max(len(chart.times), 1)
    base = [0.0] * len(chart.times)
    # A bar is a line of this width, because a rectangle takes twice as many characters.
    stroke = f"{width - min(2.0, width / 4):.1f}"
    paths = []
    for series in chart.series:
        path = []
        for place, value in enumerate(series.values):
            if value:
                height = max(1.5, PLOT_HEIGHT * value / highest)
                bottom = TOP + PLOT_HEIGHT - base[place]
                x = LEFT + (place + 0.5) * width
                path.append(f"M{x:.1f} {bottom:.1f}v{-height:.1f}")
                base[place] += height
        paths.append(
            f'<path class="column {series.css}" stroke-width="{stroke}" d="{"".join(path)}"/>'
        )
    return paths


def _lines(chart: Chart, highest: float) -> list[str]:
    """Return a path for each series. A step without a value is a gap."""
    paths = []
    for series in chart.series:
        path, is_open, last = [], False, len(series.values) - 1
        for place, value in enumerate(series.values):
            if value is None:
                is_open = False
                continue
            x, y = _x(chart, place + 0.5), _y(value / highest)
            # A step between two gaps is a dash. A dot would be hard to see.
            is_alone = not is_open and (place == last or series.values[place + 1] is None)
            dash = f"M{x - DASH_WIDTH / 2:.1f} {y:g}h{DASH_WIDTH}"
            path.append(dash if is_alone else f"{'L' if is_open else 'M'}{x:.1f} {y:g}")
            is_open = True
        paths.append(f'<path class="line {series.css}" d="{"".join(path)}"/>')
    return paths


def _hover_titles(chart: Chart) -> list[str]:
    """Return an invisible column for each step that has a value, with its values as title."""
    width = PLOT_WIDTH / max(len(chart.times), 1)
    show = short_duration if chart.shape == "lines" else _count_text
    names = [str(escape(_short_name(series.name))) for series in chart.series]
    columns = []
    for place, values in enumerate(_columns(chart)):
        if any(value is not None and value > 0 for value in values):
            named = zip(names, values, strict=True)
            texts = [f"{name}: {show(value)}" for name, value in named if value]
            title = "\n".join([step_name(chart.times[place], chart.step), *texts])
            x = LEFT + place * width
            columns.append(
                f'<path d="M{x:.1f} {TOP}v{PLOT_HEIGHT}h{width:.1f}V{TOP}"><title>{title}</title>'
                "</path>"
            )
    return ['<g class="hit">', *columns, "</g>"]


def _short_name(name: str) -> str:
    return name if len(name) <= MAX_HOVER_CHARS else f"{name[: MAX_HOVER_CHARS - 1]}…"


def _count_text(value: float | None) -> str:
    return f"{value or 0:,.0f}"


def step_length(seconds: float, /) -> str:
    """Return `minute`, `20 min`, `2 h` or `day`, to follow the word per."""
    names = {60: "minute", 3600: "hour", 86_400: "day"}
    text = f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"
    return names.get(int(seconds), text)


@lru_cache(maxsize=1_000)  # of a range, for four charts and two tables
def step_name(start: datetime, step: float, /) -> str:
    """Return `2026-01-31 12:20 to 12:40`, or the day of a step of a day."""
    if step >= 86_400:
        return f"{start:%Y-%m-%d}"
    end = start + timedelta(seconds=step)
    return f"{start:%Y-%m-%d %H:%M} to {end:%H:%M}"
