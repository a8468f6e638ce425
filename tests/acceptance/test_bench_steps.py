"""`make bench-steps` works and judges rightly. What it measures is not asserted here: machines are noisy."""

from pathlib import Path

from benchmarks.stepped.report import markdown, picture, tables
from benchmarks.stepped.results import DBOS, SYNC, TARGETS, TEMPORAL, Results
from benchmarks.target import judge, last_line
from tests.acceptance.bench import quick


def results(speed: float) -> Results:
    return Results({SYNC: [speed, speed * 1.1, speed * 0.9], DBOS: [40.0, 44.0, 36.0], TEMPORAL: [10.0, 11.0, 9.0]})


def test_targets_are_met_or_missed() -> None:
    assert last_line(judge(results(400), TARGETS)) == "all 2 targets met"
    assert last_line(judge(results(100), TARGETS)) == "1 of 2 targets missed: jobs of ten steps, to DBOS (missed)"
    assert [each.verdict for each in judge(Results(), TARGETS)] == ["NOT MEASURED"] * len(TARGETS)


def test_the_page_and_the_picture_are_written() -> None:
    found = results(400)
    found.absent["Other"] = "not installed"
    page = markdown(found, judge(found, TARGETS), 3)
    assert "| jobs of ten steps, to DBOS | ≥ 5× |" in page
    assert "All 2 targets met." in page
    assert "Other" in page
    assert picture(found).startswith("<svg")
    assert tables(found, judge(found, TARGETS))


def test_a_quick_run_of_the_steps_benchmark_succeeds(postgres: str, tmp_path: Path) -> None:
    """Ours only, where the peers are not installed."""
    printed = quick("steps.py", tmp_path, postgres=postgres)
    assert "redrive on Postgres" in printed
    assert "redrive on SQLite" in printed
    assert (tmp_path / "steps.md").exists()
    assert (tmp_path / "steps.svg").read_text().startswith("<svg")
