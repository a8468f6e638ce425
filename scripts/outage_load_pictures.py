"""Draw the pictures of docs/concepts/retries-in-an-outage.md, and write its tables, from the scenarios in examples/outages."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

from redrive.core.text import format_duration
from redrive.ops.retries.simulation import OutageFigures, SimulationReport, draw, read_scenario, simulate

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "concepts" / "retries-in-an-outage.md"
SCENARIOS = ROOT / "examples" / "outages"
NAMES = ("libraries", "overload", "budgets", "jitter", "layers")
"""Scenarios that are drawn. Simulating the others takes too long for a test."""
TABLE = re.compile(r"(?s)(<!-- figures: (?P<name>\w+) -->\n).*?(<!-- end of figures -->)")
HEAD = ("policy", "peak load", "attempts per call", "failed calls", "recovered after")


@cache
def report(name: str) -> SimulationReport:
    """Simulate a scenario."""
    return simulate(read_scenario(str(SCENARIOS / f"{name}.toml")))


def picture_file(name: str) -> Path:
    """Return the file of a picture."""
    return ROOT / "docs" / "pictures" / f"outage-{name}.svg"


def table(name: str) -> str:
    """Return the figures of a scenario as a Markdown table."""
    outcome = report(name)
    has_outage = bool(outcome.scenario.outages)
    columns = HEAD if has_outage else HEAD[:-1]
    rows = [_row(run.policy, run.figures)[: len(columns)] for run in outcome.runs]
    lines = [columns, ("---",) + ("--:",) * (len(columns) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _row(policy: str, figures: OutageFigures) -> tuple[str, ...]:
    recovered = figures.recovered_after
    return (
        policy,
        f"{figures.peak_load:,}/s ({figures.peak_factor:.3g} ×)",
        f"{figures.amplification:,.2f}",
        f"{100 * (1 - figures.success_rate):.1f} %",
        "never" if recovered is None else format_duration(recovered),
    )


def page() -> str:
    """Return the page with current tables."""
    return TABLE.sub(lambda match: f"{match[1]}{table(match['name'])}{match[3]}", PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for name in NAMES:
        picture_file(name).write_text(draw(report(name)), encoding="utf-8")
        sys.stdout.write(f"{picture_file(name).name}\n")
    PAGE.write_text(page(), encoding="utf-8")
