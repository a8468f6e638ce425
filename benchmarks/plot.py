"""Picture of a run: bars on a logarithmic scale, in panels."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Literal

from benchmarks.interval import number
from benchmarks.paths import Timings
from benchmarks.results import REFERENCE, Results
from benchmarks.targets import FROM_IMPORT, IMPORT, TARGETS

NAMES = {FROM_IMPORT: "redrive with retry", IMPORT: "redrive, only import"}
Hue = Literal["ours", "peer", "floor"]

WIDTH, COLUMN, LABEL, TOP, LINE, BAR = 1000, 480, 176, 46, 21, 13
STYLE = """\
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
.card { fill: #ffffff; stroke: #d0d7de } .under { fill: #ffffff }
.title { font-size: 14px; font-weight: 600 }
.head { font-size: 18px; font-weight: 600 }
.small { font-size: 11px; fill: #57606a }
.strong { font-weight: 700 }
.ours { fill: #0969da } .peer { fill: #8c959f } .floor { fill: #d0d7de }
.grid { stroke: #d8dee4 } .target { stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 4 3 }
.aim { font-size: 11px; fill: #cf222e }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .card { fill: #0d1117; stroke: #30363d } .under { fill: #0d1117 } .small { fill: #9198a1 }
.ours { fill: #4493f8 } .peer { fill: #6e7681 } .floor { fill: #3d444d }
.grid { stroke: #21262d } .target { stroke: #f85149 } .aim { fill: #f85149 }
}"""


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    hue: Hue


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    bars: list[Bar]
    target: float | None = None

    @property
    def height(self) -> int:
        return TOP + 24 + LINE * len(self.bars)


def picture(results: Results, machine: str) -> str:
    """Draw the cost of a call as bars."""
    return card(
        "Overhead of a retried call: Redrive and other libraries",
        "Overhead of a retried call",
        f"CPU time, medians, logarithmic scale. Shorter is better. {machine}",
        _panels(results),
    )


def card(title: str, head: str, note: str, all_panels: Iterable[Panel]) -> str:
    """Draw panels as SVG, for light and dark colour schemes."""
    panels = [panel for panel in all_panels if panel.bars]
    drawn: list[str] = []
    top = 64
    for n in range(0, len(panels), 2):
        pair = panels[n : n + 2]
        for column, panel in enumerate(pair):
            drawn.append(f'<g transform="translate({16 + column * (COLUMN + 8)} {top})">{_draw(panel)}</g>')
        top += max(panel.height for panel in pair) + 18
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" role="img">
<title>{escape(title)}</title>
<style>
{STYLE}
</style>
<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{top - 1}" rx="8"/>
<text class="head" x="16" y="30">{escape(head)}</text>
{_text("small", 16, 48, note)}
{"".join(drawn)}
</svg>
"""


def _draw(panel: Panel) -> str:
    values = [bar.value for bar in panel.bars] + ([panel.target] if panel.target else [])
    least, most = floor(log10(min(values) * 0.99)), ceil(log10(max(values)))
    most = max(most, least + 1)
    width_of_scale = COLUMN - LABEL - 56

    def x(value: float) -> float:
        return LABEL + width_of_scale * (log10(max(value, 10**least)) - least) / (most - least)

    bottom = TOP + LINE * len(panel.bars)
    parts = [_text("title", 0, 14, panel.title)]
    for power in range(least, most + 1):
        at = x(10**power)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
        parts.append(_text("small", at, bottom + 14, f"{10**power:g}{panel.unit}", "middle"))
    if panel.target:
        at = x(panel.target)
        parts.append(f'<line class="target" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
        parts.append(_text("aim", at, TOP - 9, f"target {panel.target:g}{panel.unit}", "middle"))
    for n, bar in enumerate(panel.bars):
        y = TOP + LINE * n
        strong = " strong" if bar.hue == "ours" else ""
        width = max(x(bar.value) - LABEL, 2.0)
        parts.append(_text(f"label{strong}", LABEL - 8, y + 11, bar.label, "end"))
        parts.append(f'<rect class="{bar.hue}" x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>')
        text = f"{number(bar.value)}{panel.unit}"
        # A background behind the figure, so that the line of the target does not cross it.
        parts.append(f'<rect class="under" x="{LABEL + width + 2:.1f}" y="{y}" width="{8 * len(text)}" height="{BAR}"/>')
        parts.append(_text(f"value{strong}", LABEL + width + 5, y + 11, text))
    return "".join(parts)


def _text(style: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _panels(results: Results) -> Iterable[Panel]:
    limits = [target.limit for target in TARGETS]
    sync, async_ = results.success.get("sync"), results.success.get("async")
    yield Panel("Success, sync: × a direct call", "×", _bars(sync, limit=False), limits[0])
    yield Panel("Success, async: × a direct await", "×", _bars(async_, limit=False), limits[2])
    yield Panel("One retry, sync, no sleep: × try/except", "×", _bars(results.retry.get("sync"), limit=False), limits[4])
    yield Panel("Success, async with an attempt timeout", "×", _bars(async_, limit=True), limits[3])
    reference = results.imports.get(REFERENCE)
    most = round(reference.milliseconds.median, 1) if reference else None
    yield Panel("Cold import, CPU milliseconds", "", _import_bars(results), most)
    yield Panel("Calls with 3 nested layers × 3 attempts", "", _nested_bars(results), limits[9])


def _bars(timings: Timings | None, *, limit: bool) -> list[Bar]:
    """Bars of the first form of each library, of its form with a budget, and of the floors."""
    bars: dict[str, Bar] = {}
    for candidate, cost in timings.costs.items() if timings else ():
        form, library = candidate.form, candidate.library
        if form.limit != limit or "block" in form.name:
            continue
        if library == "floor":
            if limit or "loop of" in form.name:
                name = form.name if limit else "floor, loop"
                bars[name] = Bar(name, cost.ratio.median, "floor")
        elif library not in bars:
            bars[library] = Bar(library, cost.ratio.median, "ours" if library == "redrive" else "peer")
        elif library != "redrive" and "budget" in form.name:
            bars[candidate.label] = Bar(f"{library} + budget", cost.ratio.median, "peer")
    return sorted(bars.values(), key=lambda bar: bar.value)


def _import_bars(results: Results) -> list[Bar]:
    bars = []
    for statement, cost in results.imports.items():
        name = NAMES.get(statement) or statement.removeprefix("import ")
        bars.append(Bar(name, cost.milliseconds.median, "ours" if "redrive" in name else "peer"))
    return bars


def _nested_bars(results: Results) -> list[Bar]:
    worst: dict[str, int] = {}
    for (_, candidate), failure in results.failures.items():
        if candidate.library != "floor":
            worst[candidate.library] = max(worst.get(candidate.library, 0), failure.nested)
    bars = [Bar(name, calls, "ours" if name == "redrive" else "peer") for name, calls in worst.items()]
    return sorted(bars, key=lambda bar: bar.value)
