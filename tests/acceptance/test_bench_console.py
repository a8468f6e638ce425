"""`make bench-console` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

from pathlib import Path

import pytest

from benchmarks.console_suite.report import markdown, picture, tables, targets
from benchmarks.console_suite.runner import DATABASES, Page, Results
from benchmarks.target import summary_line
from tests.acceptance.bench import quick


@pytest.mark.req("O-4")
def test_targets_are_the_requirements() -> None:
    good, bad = Page([10.0], [19.0], 149_000, 10), Page([10.0], [60.0], 151_000, 11)
    fast = Page([0.5], [4.0], 1000, 1)  # below the threshold of a ratio
    results = Results(1_000_000, {("sqlite", "overview"): good, ("sqlite", "keys"): fast, ("postgres", "overview"): bad})
    outcomes = targets(results)
    assert [j.target.text for j in outcomes] == ["≤ 2×", "≤ 25 ms", "≤ 150 KB", "≤ 10"] * len(DATABASES)
    assert [j.verdict for j in outcomes] == ["ok"] * 4 + ["MISSED"] * 4
    assert all(j.target.what.endswith("worst page (overview)") for j in outcomes)
    assert summary_line(outcomes).startswith("4 of 8 targets missed: Postgres, server time at 1,000,000 vs 1,000")
    assert "| keys | 0.50 | 4 | 0.80 | 1.0 | 1 |" in markdown(results, outcomes, 1)
    assert [table.title for table in tables(results, outcomes)] == ["Targets", "Pages on SQLite", "Pages on Postgres"]
    assert ">overview, 1,000,000</text>" in picture(results)


@pytest.mark.req("O-4")
def test_quick_run_measures_every_page(postgres: str, tmp_path: Path) -> None:
    assert "NOT MEASURED" not in quick("console.py", tmp_path, postgres=postgres)
    text = (tmp_path / "console.md").read_text(encoding="utf-8")
    assert text.startswith("# Benchmark: console")
    pages = [line.split("|") for line in text.splitlines() if line.startswith("| ") and line.count("|") == 7]
    rows = [row for row in pages if row[6].strip().isdecimal()]
    assert rows, text
    assert [
        row for row in rows if int(row[6]) > 10 or float(row[5]) > 150
    ] == []  # queries and bytes do not depend on the machine
