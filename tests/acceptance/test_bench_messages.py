"""`make bench-messages` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

from pathlib import Path

from benchmarks.messages_suite.report import markdown, picture, tables
from benchmarks.messages_suite.results import TARGETS, Results
from benchmarks.target import check_targets, summary_line
from tests.acceptance.bench import quick


def results(share: float) -> Results:
    run = Results(messages=1000, stored=1000, growth={"postgres": 1.0, "sqlite": 2.0})
    for database in ("postgres", "sqlite"):
        for batch, floor in ((100, 20_000.0), (1, 1000.0)):
            for noise in (0.9, 1.0, 1.1):
                run.pair(database, batch).add(floor * noise, floor * share, floor * noise)
        run.dead_letters |= {(database, query): 9.0 for query in ("list", "one handler", "groups")}
    run.bare = {100: [90_000.0], 1: [3000.0]}
    run.peers = {"faststream, 100 at a time": [2000.0, 2100.0, 1900.0]}
    return run


def test_targets_are_met_or_missed() -> None:
    assert summary_line(check_targets(results(0.7), TARGETS)) == f"all {len(TARGETS)} targets met"
    missed = summary_line(check_targets(results(0.3), TARGETS))
    assert missed.startswith("4 of 14 targets missed: Postgres, batches of 100, vs durable floor (missed); ")
    assert [each.verdict for each in check_targets(Results(), TARGETS)] == ["NOT MEASURED"] * len(TARGETS)


def test_the_page_and_the_picture_are_written() -> None:
    run = results(0.7)
    run.absent["arq, 100 at a time"] = "not installed"
    page = markdown(run, check_targets(run, TARGETS), 3)
    assert "| Postgres, batches of 100, vs durable floor | ≥ 0.40× |" in page
    assert f"All {len(TARGETS)} targets met." in page
    assert "arq" in page
    assert picture(run).startswith("<svg")
    assert tables(run, check_targets(run, TARGETS))


def test_a_quick_run_of_the_messages_benchmark_succeeds(postgres: str, tmp_path: Path) -> None:
    """The other libraries may not be installed."""
    printed = quick("messages.py", tmp_path, postgres=postgres)
    assert "redrive, Postgres" in printed
    assert "redrive, SQLite" in printed
    assert (tmp_path / "messages.md").exists()
    assert (tmp_path / "messages.svg").read_text().startswith("<svg")
