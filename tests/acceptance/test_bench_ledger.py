"""`make bench-ledger` works and judges rightly. What it measures is not asserted here: machines are noisy."""

import re
from pathlib import Path

from benchmarks.durable.idle import Idle
from benchmarks.durable.peers import PEERS
from benchmarks.durable.report import markdown, picture, tables
from benchmarks.durable.results import Pair, Results
from benchmarks.durable.targets import TARGETS
from benchmarks.interval import Interval
from benchmarks.target import judge
from tests.acceptance.bench import quick


def test_ours_is_compared_with_the_base_runs_before_and_after() -> None:
    pair = Pair()
    assert pair.ratio is None
    pair.add(100, 75, 50)
    pair.add(100, 50, 100)
    assert pair.base == [75, 100]
    assert pair.ratio == Interval(0.75, 0.5, 1)


def test_a_peer_is_compared_with_our_runs_before_and_after() -> None:
    results = Results()
    target = next(one for one in TARGETS if one.what == "SQLite, one at a time, to huey with fsync")
    assert target.read(results) is None
    pair = results.peers["huey with fsync"] = Pair()
    pair.around(90, 100, 130)
    pair.around(200, 50, 200)
    assert target.read(results) == Interval(2.55, 1.1, 4)
    assert results.peers["huey with fsync"].base == [100, 50]


def test_ours_runs_with_the_options_of_its_peer() -> None:
    for peer in PEERS:
        assert (peer.beside.library, peer.beside.database) == ("redrive", peer.database)
        assert (peer.beside.batch > 1) == (peer.batch > 1)
        assert peer.beside.jobs >= peer.jobs


def test_a_target_that_was_not_measured_is_missed() -> None:
    assert all(j.verdict == "NOT MEASURED" for j in judge(Results(), TARGETS))


def test_table_and_picture_show_the_results() -> None:
    results = Results(idle={"postgres": Idle(10, 10, 0.2)}, absent={"DBOS queue": "not installed"})
    results.pair("sqlite", 1).add(100, 150, 100)
    results.peers["huey with fsync"] = Pair([80.0], [90.0])
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


def test_a_quick_run_measures_installed_libraries_and_writes_table_and_plot(postgres: str, tmp_path: Path) -> None:
    printed = quick("ledger.py", tmp_path, postgres=postgres)
    # A peer that is not installed is said to be; every figure of ours is there, whatever it is.
    for line in printed.splitlines():
        if "NOT MEASURED" in line:
            assert re.search("pgqueuer|procrastinate|DBOS|huey", line), line
    assert (tmp_path / "ledger.md").read_text(encoding="utf-8").startswith("# What the ledger costs")
    assert ">redrive</text>" in (tmp_path / "ledger.svg").read_text(encoding="utf-8")
