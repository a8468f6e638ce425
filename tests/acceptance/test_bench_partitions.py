"""`make bench-partitions` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

import os
from pathlib import Path

import pytest

from benchmarks.interval import Interval
from benchmarks.partitions_suite.faults import compared
from benchmarks.partitions_suite.measure import Figures
from benchmarks.partitions_suite.report import judged, markdown, tables
from tests.acceptance.bench import quick


@pytest.mark.req("P-5")
@pytest.mark.req("P-6")
def test_faults_cost_other_libraries_counts_and_readers_and_redrive_nothing() -> None:
    found = compared(8, 1, 7)
    ours = found["redrive"]
    assert ours.verdicts > 24
    assert (ours.miscounted, ours.unreadable, ours.doubled, ours.overtaken) == (0, 0, 0, 0)
    original = found["one status column"]
    assert original.unreadable > 0
    assert original.miscounted > 0
    assert original.doubled > 0
    assert found["clear and rerun"].unreadable > 0
    if "REDRIVE_FULL" in os.environ:
        assert compared(8, 1, 7) == found


def test_targets_are_evaluated_for_each_database() -> None:
    small, big = Figures(), Figures()
    small.add("claim", 1.0)
    big.add("claim", 3.0)
    big.add("verdicts", 5000.0)
    said = judged({("sqlite", 10): small, ("sqlite", 100): big}, 10, 100)
    assert said[0].figure == Interval(3, 3, 3)
    assert [one.verdict for one in said[:3]] == ["MISSED", "ok", "NOT MEASURED"]
    assert "| sqlite: claim of 100 among 100, to 10 | ≤ 2× | 3× | MISSED |" in markdown(
        tables({("sqlite", 100): big}, said, {}), said
    )


def test_a_quick_run_measures_both_databases(postgres: str, tmp_path: Path) -> None:
    assert "NOT MEASURED" not in quick("partitions.py", tmp_path, postgres=postgres)
    assert (tmp_path / "partitions.md").read_text(encoding="utf-8").startswith("# What partitions cost")
    drawn = (tmp_path / "partitions.svg").read_text(encoding="utf-8")
    assert "Postgres: ms" in drawn
    assert "calendar, 1,000" in drawn
