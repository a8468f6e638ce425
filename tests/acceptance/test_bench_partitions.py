"""`make bench-partitions` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

import os
from pathlib import Path

import pytest

from benchmarks.interval import Interval
from benchmarks.partitions_suite.faults import compare
from benchmarks.partitions_suite.measure import Samples
from benchmarks.partitions_suite.report import check, markdown, tables
from tests.acceptance.bench import quick


@pytest.mark.req("P-5")
@pytest.mark.req("P-6")
def test_faults_cost_other_libraries_counts_and_readers_and_redrive_nothing() -> None:
    tallies = compare(8, 1, 7)
    ours = tallies["redrive"]
    assert ours.verdicts > 24
    assert (ours.miscounted, ours.unreadable, ours.doubled, ours.overtaken) == (0, 0, 0, 0)
    original = tallies["one status column"]
    assert original.unreadable > 0
    assert original.miscounted > 0
    assert original.doubled > 0
    assert tallies["clear and rerun"].unreadable > 0
    if "REDRIVE_FULL" in os.environ:
        assert compare(8, 1, 7) == tallies


def test_targets_are_evaluated_for_each_database() -> None:
    small, big = Samples(), Samples()
    small.add("claim", 1.0)
    big.add("claim", 3.0)
    big.add("verdicts", 5000.0)
    outcomes = check({("sqlite", 10): small, ("sqlite", 100): big}, 10, 100)
    assert outcomes[0].figure == Interval(3, 3, 3)
    assert [outcome.verdict for outcome in outcomes[:3]] == ["MISSED", "ok", "NOT MEASURED"]
    assert "| SQLite, claim of 100 among 100 vs 10 | ≤ 2× | 3× | MISSED |" in markdown(
        tables({("sqlite", 100): big}, outcomes, {}), outcomes
    )


def test_a_quick_run_measures_both_databases(postgres: str, tmp_path: Path) -> None:
    assert "NOT MEASURED" not in quick("partitions.py", tmp_path, postgres=postgres)
    assert (tmp_path / "partitions.md").read_text(encoding="utf-8").startswith("# Benchmark: partitions")
    picture = (tmp_path / "partitions.svg").read_text(encoding="utf-8")
    assert "Postgres: ms" in picture
    assert "calendar, 1,000" in picture
