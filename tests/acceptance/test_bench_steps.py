"""`make bench-steps` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

from pathlib import Path

from benchmarks.steps_suite.report import markdown, picture, tables
from benchmarks.steps_suite.results import DBOS, SYNC, TARGETS, TEMPORAL, Results
from benchmarks.target import check_targets, summary_line
from tests.acceptance.bench import quick


def results(speed: float) -> Results:
    return Results({SYNC: [speed, speed * 1.1, speed * 0.9], DBOS: [40.0, 44.0, 36.0], TEMPORAL: [10.0, 11.0, 9.0]})


def test_targets_are_met_or_missed() -> None:
    assert summary_line(check_targets(results(400), TARGETS)) == "all 2 targets met"
    assert summary_line(check_targets(results(100), TARGETS)) == "1 of 2 targets missed: jobs of ten steps, vs DBOS (missed)"
    assert [each.verdict for each in check_targets(Results(), TARGETS)] == ["NOT MEASURED"] * len(TARGETS)


def test_the_page_and_the_picture_are_written() -> None:
    run = results(400)
    run.absent["Other"] = "not installed"
    page = markdown(run, check_targets(run, TARGETS), 3)
    assert "| jobs of ten steps, vs DBOS | ≥ 5× |" in page
    assert "All 2 targets met." in page
    assert "Other" in page
    assert picture(run).startswith("<svg")
    assert tables(run, check_targets(run, TARGETS))


def test_a_quick_run_of_the_steps_benchmark_succeeds(postgres: str, tmp_path: Path) -> None:
    """The other libraries may not be installed."""
    printed = quick("steps.py", tmp_path, postgres=postgres)
    assert "redrive on Postgres" in printed
    assert "redrive on SQLite" in printed
    assert (tmp_path / "steps.md").exists()
    assert (tmp_path / "steps.svg").read_text().startswith("<svg")
