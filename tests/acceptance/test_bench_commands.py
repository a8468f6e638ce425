"""`make bench-commands` works and judges rightly. What it measures is not asserted here: machines are noisy."""

from pathlib import Path

from benchmarks.commanded.report import markdown, picture, tables
from benchmarks.commanded.results import ASYNC, OURS, PLAIN, TARGETS, Case, Results
from benchmarks.target import judge, last_line
from tests.acceptance.bench import quick


def results(speed: float, soon: float) -> Results:
    found = Results()
    for name in (PLAIN, ASYNC):
        for database in ("postgres", "sqlite"):
            found.rates[Case(name, database)] = [speed, speed * 1.1, speed * 0.9]
            found.of_20_ms[Case(name, database)] = [380.0, 390.0, 370.0]
    peers = {"DBOS queue": 50.0, "procrastinate, 10 at once": 100.0, "pgqueuer, batches of 100": 900.0}
    for name, rate in peers.items():
        found.rates[Case(name, "postgres")] = [rate, rate * 1.1, rate * 0.9]
    found.rates[Case("huey with fsync", "sqlite")] = [500.0, 550.0, 450.0]
    for database in ("postgres", "sqlite"):
        found.latencies[Case(OURS, database)] = [soon, soon, soon]
    return found


def test_targets_are_met_or_missed() -> None:
    assert last_line(judge(results(2000, 5), TARGETS)) == "all 6 targets met"
    missed = last_line(judge(results(600, 30), TARGETS))
    assert missed.startswith("3 of 6 targets missed: Postgres, async commands, to procrastinate, 10 at once (missed); ")
    assert missed.endswith("Postgres, from submit to start, p50 (missed)")
    assert [each.verdict for each in judge(Results(), TARGETS)] == ["NOT MEASURED"] * len(TARGETS)


def test_the_page_and_the_picture_are_written() -> None:
    found = results(2000, 5)
    found.absent["Other"] = "not installed"
    page = markdown(found, judge(found, TARGETS), 3)
    assert "| Postgres, plain commands, to DBOS queue | ≥ 10× |" in page
    assert "All 6 targets met." in page
    assert "Other" in page
    assert "## Postgres: commands of 20 ms, through the whole worker" in page
    assert "| **redrive, plain** | **380 (370–390)** |" in page
    assert picture(found).startswith("<svg")
    assert tables(found, judge(found, TARGETS))


def test_a_quick_run_of_the_commands_benchmark_succeeds(postgres: str, tmp_path: Path) -> None:
    """Ours only, where the peers are not installed."""
    printed = quick("commands.py", tmp_path, postgres=postgres)
    assert "redrive, plain" in printed
    assert "Postgres: commands of 20 ms, through the whole worker" in printed
    for line in printed.splitlines():
        assert "from submit to start" not in line or "NOT MEASURED" not in line
    assert (tmp_path / "commands.md").exists()
    assert (tmp_path / "commands.svg").read_text().startswith("<svg")
