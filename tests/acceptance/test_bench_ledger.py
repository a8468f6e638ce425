"""`make bench-ledger` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

import re
from pathlib import Path

from benchmarks.interval import Interval
from benchmarks.ledger_suite.idle import Idle
from benchmarks.ledger_suite.peers import PEERS
from benchmarks.ledger_suite.report import markdown, picture, tables
from benchmarks.ledger_suite.results import Pair, Results
from benchmarks.ledger_suite.submitters import BARE
from benchmarks.ledger_suite.targets import TARGETS
from benchmarks.target import check_targets
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
    target = next(each for each in TARGETS if each.what == "SQLite, one at a time, vs huey with fsync")
    assert target.read(results) is None
    pair = results.peers["huey with fsync"] = Pair()
    pair.around(90, 100, 130)
    pair.around(200, 50, 200)
    assert target.read(results) == Interval(2.55, 1.1, 4)
    assert results.peers["huey with fsync"].base == [100, 50]


def test_ours_runs_with_the_options_of_its_peer() -> None:
    for peer in PEERS:
        assert (peer.counterpart.library, peer.counterpart.database) == ("redrive", peer.database)
        assert (peer.counterpart.batch > 1) == (peer.batch > 1)
        assert peer.counterpart.jobs >= peer.jobs


def test_a_target_that_was_not_measured_is_missed() -> None:
    assert all(j.verdict == "NOT MEASURED" for j in check_targets(Results(), TARGETS))


def test_table_and_picture_show_the_results() -> None:
    results = Results(idle={"postgres": Idle(10, 10, 0.2)}, absent={"DBOS queue": "not installed"})
    results.pair("sqlite", 1).add(100, 150, 100)
    results.peers["huey with fsync"] = Pair([80.0], [90.0])
    results.submits["sqlite", BARE] = Pair([100], [900])
    text = markdown(results, check_targets(results, TARGETS), 1)
    assert "| **redrive ledger** | **150 (150–150)** | **1.50** |" in text
    assert "| DBOS queue | not installed |" in text
    assert re.search(r"\| SQLite, one at a time, vs raw loop \| ≥ 1× \| 1.50× \| ok \|", text)
    assert [table.title for table in tables(results, [])][1:] == [
        "SQLite, empty jobs, one at a time",
        "32 threads, one job per submit",
        "Idle worker",
        "Not measured",
    ]
    assert ">huey with fsync</text>" in picture(results)


def test_a_quick_run_measures_installed_libraries_and_writes_table_and_plot(postgres: str, tmp_path: Path) -> None:
    printed = quick("ledger.py", tmp_path, postgres=postgres)
    # Only libraries that are not installed may be without a figure.
    for line in printed.splitlines():
        if "NOT MEASURED" in line:
            assert re.search("pgqueuer|procrastinate|DBOS|huey", line), line
    assert (tmp_path / "ledger.md").read_text(encoding="utf-8").startswith("# Benchmark: ledger")
    assert ">redrive</text>" in (tmp_path / "ledger.svg").read_text(encoding="utf-8")
