"""`make bench-commands` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

from pathlib import Path

from benchmarks.commands_suite.report import markdown, picture, tables
from benchmarks.commands_suite.results import ASYNC, OURS, SYNC, TARGETS, Case, Results
from benchmarks.target import check_targets, summary_line
from tests.acceptance.bench import quick


def results(speed: float, latency: float) -> Results:
    run = Results()
    for name in (SYNC, ASYNC):
        for database in ("postgres", "sqlite"):
            run.rates[Case(name, database)] = [speed, speed * 1.1, speed * 0.9]
            run.of_20_ms[Case(name, database)] = [380.0, 390.0, 370.0]
    peers = {"DBOS queue": 50.0, "procrastinate, 10 at once": 100.0, "pgqueuer, batches of 100": 900.0}
    for name, rate in peers.items():
        run.rates[Case(name, "postgres")] = [rate, rate * 1.1, rate * 0.9]
    run.rates[Case("huey with fsync", "sqlite")] = [500.0, 550.0, 450.0]
    for database in ("postgres", "sqlite"):
        run.latencies[Case(OURS, database)] = [latency, latency, latency]
    return run


def test_targets_are_met_or_missed() -> None:
    assert summary_line(check_targets(results(2000, 5), TARGETS)) == "all 6 targets met"
    missed = summary_line(check_targets(results(600, 30), TARGETS))
    assert missed.startswith("3 of 6 targets missed: Postgres, async commands, vs procrastinate, 10 at once (missed); ")
    assert missed.endswith("Postgres, from submit to start, p50 (missed)")
    assert [each.verdict for each in check_targets(Results(), TARGETS)] == ["NOT MEASURED"] * len(TARGETS)


def test_the_page_and_the_picture_are_written() -> None:
    run = results(2000, 5)
    run.absent["Other"] = "not installed"
    page = markdown(run, check_targets(run, TARGETS), 3)
    assert "| Postgres, sync commands, vs DBOS queue | ≥ 10× |" in page
    assert "All 6 targets met." in page
    assert "Other" in page
    assert "## Postgres, commands of 20 ms, whole worker" in page
    assert "| **redrive, sync** | **380 (370–390)** |" in page
    assert picture(run).startswith("<svg")
    assert tables(run, check_targets(run, TARGETS))


def test_a_quick_run_of_the_commands_benchmark_succeeds(postgres: str, tmp_path: Path) -> None:
    """The other libraries may not be installed."""
    printed = quick("commands.py", tmp_path, postgres=postgres)
    assert "redrive, sync" in printed
    assert "Postgres, commands of 20 ms, whole worker" in printed
    for line in printed.splitlines():
        assert "from submit to start" not in line or "NOT MEASURED" not in line
    assert (tmp_path / "commands.md").exists()
    assert (tmp_path / "commands.svg").read_text().startswith("<svg")
