"""`make bench-commands` works and judges rightly. What it measures is not asserted here: machines are noisy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.commanded.report import markdown, picture, tables
from benchmarks.commanded.results import ASYNC, OURS, PLAIN, TARGETS, Case, Results, judge
from benchmarks.durable.targets import last_line

ROOT = Path(__file__).resolve().parents[2]


def results(speed: float, soon: float) -> Results:
    found = Results()
    for name in (PLAIN, ASYNC):
        for database in ("postgres", "sqlite"):
            found.rates[Case(name, database)] = [speed, speed * 1.1, speed * 0.9]
    peers = {"DBOS queue": 50.0, "procrastinate, 10 at once": 100.0, "pgqueuer, batches of 100": 900.0}
    for name, rate in peers.items():
        found.rates[Case(name, "postgres")] = [rate, rate * 1.1, rate * 0.9]
    found.rates[Case("huey with fsync", "sqlite")] = [500.0, 550.0, 450.0]
    for database in ("postgres", "sqlite"):
        found.latencies[Case(OURS, database)] = [soon, soon, soon]
    return found


def test_what_is_met_and_what_is_missed() -> None:
    assert last_line(judge(results(2000, 5))) == "all 6 targets met"
    missed = last_line(judge(results(600, 30)))
    assert missed.startswith("3 of 6 targets missed: Postgres, async commands, to procrastinate, 10 at once (missed); ")
    assert missed.endswith("Postgres, from submit to start, p50 (missed)")
    assert [each.verdict for each in judge(Results())] == ["NOT MEASURED"] * len(TARGETS)


def test_the_page_and_the_picture() -> None:
    found = results(2000, 5)
    found.absent["Other"] = "not installed"
    page = markdown(found, judge(found), 3)
    assert "| Postgres, plain commands, to DBOS queue | ≥ 10× |" in page
    assert "All 6 targets met." in page
    assert "Other" in page
    assert picture(found).startswith("<svg")
    assert tables(found, judge(found))


@pytest.mark.skipif(
    "REDRIVE_FULL" not in os.environ,
    reason="others stand for it: REDRIVE_FULL=1 runs it",
)
def test_a_quick_run(tmp_path: Path) -> None:
    """Ours only, where the peers are not installed."""
    command = [sys.executable, "benchmarks/commands.py", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=250)
    assert done.returncode in (0, 1), done.stderr
    assert "redrive, plain" in done.stdout
    assert (tmp_path / "commands.md").exists()
    assert (tmp_path / "commands.svg").read_text().startswith("<svg")
