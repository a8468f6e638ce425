"""`make bench-engines` works and judges rightly. What it measures is not asserted here: machines are noisy."""

from pathlib import Path

from benchmarks.engined.report import markdown, picture
from benchmarks.engined.results import ALL, FAILURES, LOOP, TARGETS, Results
from benchmarks.target import judge, last_line
from tests.acceptance.bench import quick


def results(speed: float) -> Results:
    rates = {(broker, LOOP, 1): [1000.0, 1100.0, 900.0] for broker in ("redis", "nats", "kafka")}
    rates |= {(broker, FAILURES, 1): [speed, speed * 1.1, speed * 0.9] for broker in ("redis", "nats", "kafka")}
    rates["redis", ALL, 2] = [500.0]
    return Results(rates)


def test_targets_are_met_or_missed() -> None:
    assert last_line(judge(results(900), TARGETS)) == "all 3 targets met"
    assert last_line(judge(results(400), TARGETS)).startswith("3 of 3 targets missed: Redis")


def test_the_page_and_the_picture_are_written() -> None:
    found = results(900)
    found.absent["Other"] = "not installed"
    page = markdown(found, judge(found, TARGETS), 3)
    assert "## Redis: messages/s" in page
    assert "0.90" in page
    assert picture(found).startswith("<svg")


def test_a_quick_run_of_the_engines_benchmark_succeeds(postgres: str, tmp_path: Path) -> None:
    printed = quick("engines.py", tmp_path, "--only", "redis", postgres=postgres)
    assert "Redis: messages/s" in printed
    assert (tmp_path / "engines.md").exists()
