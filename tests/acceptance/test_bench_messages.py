"""`make bench-messages` works and judges rightly. What it measures is not asserted here: machines are noisy."""

from pathlib import Path

from benchmarks.streamed.report import markdown, picture, tables
from benchmarks.streamed.results import TARGETS, Results
from benchmarks.target import judge, last_line
from tests.acceptance.bench import quick


def results(share: float) -> Results:
    found = Results(messages=1000, pile=1000, growth={"postgres": 1.0, "sqlite": 2.0})
    for database in ("postgres", "sqlite"):
        for batch, floor in ((100, 20_000.0), (1, 1000.0)):
            for noise in (0.9, 1.0, 1.1):
                found.pair(database, batch).add(floor * noise, floor * share, floor * noise)
        found.letters |= {(database, what): 9.0 for what in ("list", "one handler", "groups")}
    found.bare = {100: [90_000.0], 1: [3000.0]}
    found.peers = {"faststream, 100 at a time": [2000.0, 2100.0, 1900.0]}
    return found


def test_targets_are_met_or_missed() -> None:
    assert last_line(judge(results(0.7), TARGETS)) == f"all {len(TARGETS)} targets met"
    missed = last_line(judge(results(0.3), TARGETS))
    assert missed.startswith("4 of 14 targets missed: Postgres, batches of 100, to the durable floor (missed); ")
    assert [each.verdict for each in judge(Results(), TARGETS)] == ["NOT MEASURED"] * len(TARGETS)


def test_the_page_and_the_picture_are_written() -> None:
    found = results(0.7)
    found.absent["arq, 100 at a time"] = "not installed"
    page = markdown(found, judge(found, TARGETS), 3)
    assert "| Postgres, batches of 100, to the durable floor | ≥ 0.40× |" in page
    assert f"All {len(TARGETS)} targets met." in page
    assert "arq" in page
    assert picture(found).startswith("<svg")
    assert tables(found, judge(found, TARGETS))


def test_a_quick_run_of_the_messages_benchmark_succeeds(postgres: str, tmp_path: Path) -> None:
    """The floors and ours, where the peers are not installed."""
    printed = quick("messages.py", tmp_path, postgres=postgres)
    assert "redrive, Postgres" in printed
    assert "redrive, SQLite" in printed
    assert (tmp_path / "messages.md").exists()
    assert (tmp_path / "messages.svg").read_text().startswith("<svg")
