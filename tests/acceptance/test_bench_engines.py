"""`make bench-engines` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

from pathlib import Path

from benchmarks.engines_suite.brokers import BROKERS
from benchmarks.engines_suite.report import markdown, picture
from benchmarks.engines_suite.results import ALL, FAILURES, FLOOR, LOOP, TARGETS, Results
from benchmarks.target import check_targets, summary_line
from tests.acceptance.bench import quick


def results(speed: float) -> Results:
    rates = {(broker, LOOP, 1): [1000.0, 1100.0, 900.0] for broker in BROKERS}
    rates |= {(broker, FLOOR, 1): [1000.0, 1100.0, 900.0] for broker in BROKERS}
    rates |= {(broker, FAILURES, 1): [speed, speed * 1.1, speed * 0.9] for broker in BROKERS}
    rates["redis", ALL, 2] = [500.0]
    return Results(rates)


def test_targets_are_met_or_missed() -> None:
    assert summary_line(check_targets(results(900), TARGETS)) == "all 8 targets met"
    assert summary_line(check_targets(results(400), TARGETS)).startswith("8 of 8 targets missed: Redis")


def test_the_page_and_the_picture_are_written() -> None:
    run = results(900)
    run.absent["Other"] = "not installed"
    page = markdown(run, check_targets(run, TARGETS), 3)
    assert "## Redis: messages/s" in page
    assert "0.90" in page
    assert picture(run).startswith("<svg")


def test_a_quick_run_of_the_engines_benchmark_succeeds(postgres: str, tmp_path: Path) -> None:
    printed = quick("engines.py", tmp_path, "--only", "redis", postgres=postgres)
    assert "Redis: messages/s" in printed
    assert (tmp_path / "engines.md").exists()
