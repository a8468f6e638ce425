"""`make bench-ledger` works and judges rightly. What it measures is not asserted here: machines are noisy."""

import re
from pathlib import Path

from benchmarks.durable.idle import Idle
from benchmarks.durable.report import markdown, picture, tables
from benchmarks.durable.results import Pair, Results
from benchmarks.durable.targets import TARGETS
from benchmarks.interval import Interval
from benchmarks.target import judge
from tests.acceptance.bench import quick


def test_ours_stands_between_two_of_the_base() -> None:
    pair = Pair()
    assert pair.ratio is None
    pair.add(100, 75, 50)
    pair.add(100, 50, 100)
    assert pair.base == [75, 100]
    assert pair.ratio == Interval(0.75, 0.5, 1)


def test_ahead_of_a_peer_is_the_medians_with_all_their_doubt() -> None:
    results = Results()
    for rate in (900.0, 1000.0, 1100.0):
        results.pair("postgres", 100).add(1, rate, 1)
    assert results.ahead(("postgres", 100), "pgqueuer, batches of 100") is None
    results.peers["pgqueuer, batches of 100"] = [450, 500, 550]
    found = results.ahead(("postgres", 100), "pgqueuer, batches of 100")
    assert found is not None
    assert (found.median, round(found.low, 2), round(found.high, 2)) == (2, 1.64, 2.44)


def test_what_was_not_measured_is_missed() -> None:
    assert all(j.verdict == "NOT MEASURED" for j in judge(Results(), TARGETS))


def test_table_and_picture_of_what_was_found() -> None:
    results = Results(idle={"postgres": Idle(10, 10, 0.2)}, absent={"DBOS queue": "not installed"})
    results.pair("sqlite", 1).add(100, 150, 100)
    results.peers["huey with fsync"] = [80.0]
    results.submits["sqlite", "a bare row"] = Pair([100], [900])
    text = markdown(results, judge(results, TARGETS), 1)
    assert "| **redrive ledger** | **150 (150–150)** | **1.50** |" in text
    assert "| DBOS queue | not installed |" in text
    assert re.search(r"\| SQLite, one at a time, to the raw loop \| ≥ 1× \| 1.50× \| ok \|", text)
    assert [table.title for table in tables(results, [])][1:] == [
        "SQLite: jobs that do nothing, one at a time",
        "32 threads submit, one job a time",
        "Nothing to do",
        "Not measured",
    ]
    assert ">huey with fsync</text>" in picture(results)


def test_a_quick_run_measures_what_is_installed_and_writes_table_and_plot(postgres: str, tmp_path: Path) -> None:
    printed = quick("ledger.py", tmp_path, postgres=postgres)
    # A peer that is not installed is said to be; every figure of ours is there, whatever it is.
    for line in printed.splitlines():
        if "NOT MEASURED" in line:
            assert re.search("pgqueuer|procrastinate|DBOS|huey", line), line
    assert (tmp_path / "ledger.md").read_text(encoding="utf-8").startswith("# What the ledger costs")
    assert ">redrive</text>" in (tmp_path / "ledger.svg").read_text(encoding="utf-8")
