"""`make bench-scale` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

from pathlib import Path

import pytest

from benchmarks.scale_suite.report import markdown, picture
from benchmarks.scale_suite.results import CLAIM, FLAT_BY_ROWS, ROWS, TARGETS, Curve, Results
from benchmarks.target import check_targets
from tests.acceptance.bench import quick


def grows(exponent: float) -> Curve:
    return Curve({size: [3.0 * size**exponent, 4.0 * size**exponent] for size in (100, 10_000, 1_000_000)})


@pytest.mark.parametrize("exponent", [-0.1, 0.0, 0.05, 0.5, 1.0])
def test_the_exponent_is_that_of_the_curve(exponent: float) -> None:
    measured = grows(exponent).exponent
    assert measured is not None
    assert measured.median == pytest.approx(exponent)


def test_targets_are_met_or_missed() -> None:
    results = Results()
    results.curve(ROWS, "Postgres", CLAIM).points = grows(0.01).points
    results.curve(ROWS, "SQLite", CLAIM).points = grows(0.4).points
    verdicts = {each.target.what: each.verdict for each in check_targets(results, TARGETS)}
    assert verdicts[f"Postgres, {CLAIM}, by rows, exponent"] == "ok"
    assert verdicts[f"SQLite, {CLAIM}, by rows, exponent"] == "MISSED"
    assert verdicts[f"SQLite, {FLAT_BY_ROWS[0]}, by rows, exponent"] == "NOT MEASURED"
    page = markdown(results, check_targets(results, TARGETS), 2)
    assert "| SQLite, claim 100 jobs and settle 100 | 22.1 | 139 | 879 | 0.40 (0.40–0.40) |" in page.replace("**", "")
    assert picture(results).startswith("<svg")


@pytest.mark.req("Z-3")
def test_a_quick_run_of_the_scale_benchmark_succeeds(postgres: str, tmp_path: Path) -> None:
    printed = quick("scale.py", tmp_path, postgres=postgres)
    assert "Workers on one Postgres" in printed
    assert "list dead letters" in printed
    assert (tmp_path / "scale.md").exists()
    assert (tmp_path / "scale.svg").read_text().startswith("<svg")
