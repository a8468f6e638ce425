"""`make bench-ledger` works and judges rightly. What it measures is not asserted here: machines are noisy."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.durable.idle import Idle
from benchmarks.durable.report import markdown, picture, tables
from benchmarks.durable.results import Pair, Results
from benchmarks.durable.targets import TARGETS, Side, Target, judge, last_line, verdict
from benchmarks.interval import Interval

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("figure", "side", "judged"),
    [
        (Interval(0.7, 0.6, 0.8), "≥", "ok"),
        (Interval(0.6, 0.6, 0.6), "≥", "ok"),
        (Interval(0.55, 0.4, 0.65), "≥", "ok within noise"),
        (Interval(0.55, 0.5, 0.59), "≥", "MISSED"),
        (Interval(0.5, 0.4, 0.6), "≤", "ok"),
        (Interval(0.7, 0.5, 0.8), "≤", "ok within noise"),
        (Interval(0.7, 0.61, 0.8), "≤", "MISSED"),
        (None, "≥", "NOT MEASURED"),
    ],
)
def test_a_target_is_missed_only_where_the_whole_interval_misses_it(figure: Interval | None, side: Side, judged: str) -> None:
    assert verdict(figure, side, 0.6) == judged


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


def test_the_last_line_names_what_is_missed() -> None:
    met = Target("met", "≥", 1, "×", lambda _: Interval(2, 2, 2))
    slow = Target("slow", "≥", 3, "×", lambda _: Interval(2, 2, 2))
    assert last_line(judge(Results(), (met,))) == "all 1 targets met"
    assert last_line(judge(Results(), (met, slow))) == "1 of 2 targets missed: slow (missed)"
    assert all(j.verdict == "NOT MEASURED" for j in judge(Results(), TARGETS))


def test_table_and_picture_of_what_was_found() -> None:
    results = Results(idle={"postgres": Idle(10, 10, 0.2)}, absent={"DBOS queue": "not installed"})
    results.pair("sqlite", 1).add(100, 150, 100)
    results.peers["huey with fsync"] = [80.0]
    results.submits["sqlite"] = Pair([100], [900])
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
    command = [sys.executable, "benchmarks/ledger.py", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1), done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.match(r"(all \d+ targets met|\d+ of \d+ targets missed: )", last), done.stderr
    # A peer that is not installed is said to be; every figure of ours is there, whatever it is.
    for line in done.stdout.splitlines():
        if "NOT MEASURED" in line:
            assert re.search("pgqueuer|procrastinate|DBOS|huey", line), line
    assert (tmp_path / "ledger.md").read_text(encoding="utf-8").startswith("# What the ledger costs")
    assert ">redrive</text>" in (tmp_path / "ledger.svg").read_text(encoding="utf-8")
