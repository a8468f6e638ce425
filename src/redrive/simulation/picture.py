"""The report as an SVG: a row for each policy, with load, goodput and outages over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, log10

from ..core.text import format_duration
from .figures import OutageFigures, PolicyRun, SimulationReport

WIDTH, LEFT, RIGHT = 860, 232, 844
TOP, ROW, PLOT = 74, 118, 84
"""Height of the head, of a row, and of the plot in a row."""
MAX_POINTS = 600
MAX_SCALE = 15
"""Multiples of the normal load or the capacity that fit the scale. Higher peaks are cut."""
NICE = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
TIME_STEPS = (5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400)
"""Seconds between two labels of the time axis."""
MAX_TIME_LABELS = 11
STYLE = """\
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, sans-serif; fill: #24292f }
.card { fill: #ffffff; stroke: #d0d7de }
.head { font-size: 17px; font-weight: 600 }
.name { font-size: 14px; font-weight: 600 }
.small { font-size: 11px; fill: #57606a }
.down { fill: #ffebe9 }
.load { fill: #f0883e; fill-opacity: 0.35; stroke: #bc4c00; stroke-width: 1 }
.good { fill: none; stroke: #0969da; stroke-width: 1.8; stroke-linejoin: round }
.capacity { stroke: #57606a; stroke-dasharray: 4 3 }
.axis { stroke: #8c959f }
.cut { font-size: 11px; font-weight: 600; fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .card { fill: #0d1117; stroke: #30363d } .small { fill: #9198a1 }
.down { fill: #3d1416 } .load { fill: #db6d28; stroke: #f0883e } .good { stroke: #58a6ff }
.capacity { stroke: #9198a1 } .axis { stroke: #6e7681 } .cut { fill: #f0883e }
}"""


def draw(report: SimulationReport, /) -> str:
    """Return the SVG of a report, for light and dark colour schemes."""
    height = TOP + ROW * len(report.runs) + 14
    highest = _scale(report)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    spoken = escape(_screen_reader_text(report))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{spoken}">',
        f"<title>{escape(report.scenario.title)}</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        _text("head", 16, 28, report.scenario.title),
        *_legend(has_outage=bool(report.scenario.outages)),
    ]
    for place, run in enumerate(report.runs):
        parts += _row(report, run, TOP + ROW * place, highest)
    parts += _time_axis(report.scenario.seconds, TOP + ROW * len(report.runs))
    return "\n".join([*parts, "</svg>", ""])


def _screen_reader_text(report: SimulationReport) -> str:
    """Return the picture in words, for screen readers."""
    has_outage = bool(report.scenario.outages)
    runs = [
        f"{run.policy}: {', '.join(figure_words(run.figures, has_outage=has_outage))}"
        for run in report.runs
    ]
    return f"{report.scenario.title}. {'. '.join(runs)}."


def figure_words(figures: OutageFigures, /, *, has_outage: bool) -> list[str]:
    """Return the figures of a run in words."""
    words = [
        f"peak {figures.peak_load:,}/s ({figures.peak_factor:.3g} × normal)",
        f"{figures.amplification:,.2f} attempts per call",
        f"{100 * (1 - figures.success_rate):.1f} % of calls failed",
    ]
    if not has_outage:
        return words
    recovered = figures.recovered_after
    if recovered is None:
        return [*words, "not recovered"]
    return [*words, f"recovered after {format_duration(recovered)}"]


def _legend(*, has_outage: bool) -> list[str]:
    y, parts, x = 50, [], 16.0
    entries = (
        ("load", "load: attempts/s", 118),
        ("good", "goodput: successful calls/s", 182),
        ("capacity", "capacity", 84),
        ("down", "outage", 60),
    )
    for css, label, width in entries[: None if has_outage else -1]:
        if css in ("load", "down"):
            parts.append(f'<rect class="{css}" x="{x:g}" y="{y - 9}" width="16" height="10"/>')
        else:
            line = f'x1="{x:g}" x2="{x + 16:g}" y1="{y - 4}" y2="{y - 4}"'
            parts.append(f'<line class="{css}" {line}/>')
        parts.append(_text("small", x + 21, y, label))
        x += width + 24
    return parts


def _row(report: SimulationReport, run: PolicyRun, top: float, highest: float) -> list[str]:
    scenario, seconds = report.scenario, report.scenario.seconds
    base = top + PLOT

    def y(value: float) -> float:
        return base - PLOT * min(value, highest) / highest

    parts = [_text("name", 16, top + 14, run.policy)]
    has_outage = bool(scenario.outages)
    for line, words in enumerate(figure_words(run.figures, has_outage=has_outage)):
        parts.append(_text("small", 16, top + 32 + 16 * line, words))
    for outage in scenario.outages:
        x, end = _x(outage.at, seconds), _x(min(outage.end, seconds), seconds)
        parts.append(
            f'<rect class="down" x="{x:.1f}" y="{top}" width="{end - x:.1f}" height="{PLOT}"/>'
        )
    load = _points(run.curve.attempts, seconds, y)
    good = _points(run.curve.succeeded, seconds, y)
    if scenario.service.capacity <= highest:
        level = f"{y(scenario.service.capacity):.1f}"
        parts.append(f'<line class="capacity" x1="{LEFT}" x2="{RIGHT}" y1="{level}" y2="{level}"/>')
    parts += [
        f'<polygon class="load" points="{LEFT},{base} {load} {RIGHT},{base}"/>',
        f'<polyline class="good" points="{good}"/>',
        f'<line class="axis" x1="{LEFT}" x2="{RIGHT}" y1="{base}" y2="{base}"/>',
        _text("small", LEFT - 6, top + 9, short_count(highest), "end"),
        _text("small", LEFT - 6, base, "0", "end"),
    ]
    peak = run.figures.peak_load
    if peak > highest:
        at = run.curve.attempts.index(peak) + 0.5
        x = min(max(_x(at, seconds), LEFT + 40), RIGHT - 40)
        parts.append(_text("cut", x, top - 3, f"↑ {short_count(peak)}/s", "middle"))
    return parts


def _scale(report: SimulationReport) -> float:
    """Return the end of the scale of all rows."""
    capacity = report.scenario.service.capacity
    peaks = [max(run.curve.attempts) for run in report.runs]
    normal = max([run.figures.normal_load for run in report.runs] + [1.0])
    most = MAX_SCALE * max(normal, capacity)
    highest = max([peak for peak in peaks if peak <= most] + [1.5 * normal])
    if max(peaks) > most:
        highest = max(highest, most / 3)
    unit = 10.0 ** (ceil(log10(highest)) - 1)
    return next(nice * unit for nice in NICE if nice * unit >= highest)


def _time_axis(seconds: float, top: float) -> list[str]:
    y = top - (ROW - PLOT) + 16
    step = next((each for each in TIME_STEPS if seconds / each <= MAX_TIME_LABELS), TIME_STEPS[-1])
    unit, name = (60, "minutes") if step >= 60 else (1, "seconds")
    parts = []
    for at in range(0, int(seconds) + 1, step):
        anchor = "end" if at == seconds else "middle"
        parts.append(_text("small", _x(at, seconds), y, f"{at / unit:g}", anchor))
    middle = (LEFT + RIGHT) / 2
    parts.append(_text("small", middle, y + 18, f"{name} of simulated time", "middle"))
    return parts


def _points(values: Sequence[int], seconds: float, y: Callable[[float], float]) -> str:
    """Return a point for each second, or for the highest value of several seconds."""
    width = max(1, ceil(len(values) / MAX_POINTS))
    points = []
    for first in range(0, len(values), width):
        part = values[first : first + width]
        points.append(f"{_x(first + len(part) / 2, seconds):.1f},{y(max(part)):.1f}")
    return " ".join(points)


def _x(at: float, seconds: float) -> float:
    return LEFT + (RIGHT - LEFT) * at / seconds


def short_count(value: float, /) -> str:
    """Return 950, 1.5k or 2.4M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _text(css: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    end = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{css}" x="{x:.1f}" y="{y:g}"{end}>{escape(text)}</text>'
