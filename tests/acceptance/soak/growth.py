"""Memory, descriptors, connections and table sizes over time, as lines of text and as a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import psycopg

from tests.acceptance.crash.oracle import rows

MIB = 1024 * 1024
WIDTH, PANEL, LEFT, RIGHT = 900, 130, 70, 20
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #24292f } .card { fill: #ffffff } .grid { stroke: #d8dee4 }
.line { fill: none; stroke: #0969da; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .card { fill: #0d1117 } .grid { stroke: #30363d } .line { stroke: #4493f8 } }"""


def measure(url: str, pids: Sequence[int]) -> dict[str, float]:
    """Return what can grow: the worker with these process ids, or the largest of them, and the sizes in the ledger."""
    figures = {"memory of a worker, MiB": 0.0, "open files of a worker": 0.0, "threads of a worker": 0.0}
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
            files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
            for name, value in zip(list(figures), (memory, files, threads), strict=True):
                figures[name] = max(figures[name], float(value))
    with suppress(psycopg.Error):
        if url.startswith("sqlite"):
            file = Path(url.removeprefix("sqlite:///"))
            log = file.with_name(f"{file.name}-wal")
            figures["ledger, MiB"] = file.stat().st_size / MIB
            figures["write-ahead log, MiB"] = log.stat().st_size / MIB if log.exists() else 0.0
        else:
            size, connections = rows(
                url,
                "SELECT pg_database_size(current_database()), (SELECT count(*) FROM pg_stat_activity WHERE state IS NOT NULL)",
            )[0]
            figures |= {"ledger, MiB": size / MIB, "connections": float(connections)}
        figures["jobs"] = float(rows(url, "SELECT count(*) FROM redrive_job")[0][0])
    return figures


@dataclass
class Growth:
    """Figures over time."""

    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, seconds: float, figures: dict[str, float]) -> None:
        """Add figures of a moment."""
        for name, value in figures.items():
            self.series.setdefault(name, []).append((seconds, value))

    def lines(self) -> list[str]:
        """Return the first, largest and last value of each figure."""
        lines = []
        for name, points in self.series.items():
            values = [value for _, value in points]
            lines.append(f"{name}: {values[0]:,.0f} at first, at most {max(values):,.0f}, {values[-1]:,.0f} at last")
        return lines

    def picture(self, title: str) -> str:
        """Draw the figures as SVG, one below the other."""
        panels = [_panel(name, points, 50 + at * PANEL) for at, (name, points) in enumerate(self.series.items())]
        height = 60 + PANEL * len(self.series)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
            f"<title>{escape(title)}</title>\n"
            f'<style>{STYLE}</style>\n<rect class="card" width="{WIDTH}" height="{height}"/>\n'
            f'<text x="16" y="28" font-weight="600">{escape(title)}</text>\n{"".join(panels)}</svg>\n'
        )


def _panel(name: str, points: Sequence[tuple[float, float]], top: float) -> str:
    highest = max(*(value for _, value in points), 1.0)
    longest = max(*(at for at, _ in points), 1.0)
    drawn = " ".join(
        f"{LEFT + (WIDTH - LEFT - RIGHT) * at / longest:.1f},{top + (PANEL - 40) * (1 - value / highest) + 18:.1f}"
        for at, value in points
    )
    bottom = top + PANEL - 22
    return (
        f'<text x="16" y="{top + 2:.0f}">{escape(name)}</text>'
        f'<text x="{LEFT - 6}" y="{top + 22:.0f}" text-anchor="end">{highest:,.0f}</text>'
        f'<text x="{LEFT - 6}" y="{bottom:.0f}" text-anchor="end">0</text>'
        f'<text x="{WIDTH - RIGHT}" y="{bottom + 14:.0f}" text-anchor="end">{longest / 60:,.0f} min</text>'
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>'
        f'<polyline class="line" points="{drawn}"/>\n'
    )
