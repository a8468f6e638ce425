"""`make bench-storage` works and judges rightly. What it measures is not asserted here: machines are noisy."""

from pathlib import Path

from benchmarks.stored.course import ACTS, better, lags
from benchmarks.stored.report import MIB, Case, Results, Seen, judged, markdown
from benchmarks.target import last_line
from tests.acceptance.bench import quick


def results(share: float, grew: float) -> Results:
    took = {"ours": 1.0, "native": share, "peer": 3.0}
    cases = {Case("s3", act, who): Seen(seconds, 0.5, grew) for act in ACTS for who, seconds in took.items()}
    return Results(1024 * MIB, 10_000, 3, True, cases)


def test_what_is_met_and_what_is_missed() -> None:
    assert last_line(judged(results(0.95, 20 * MIB))) == "all 7 targets met"
    missed = last_line(judged(results(0.8, 100 * MIB)))
    assert missed.startswith("4 of 7 targets missed: s3: write, to s3fs (missed); ")
    assert missed.endswith("; s3: memory (missed)")


def test_the_page() -> None:
    found = results(0.95, 20 * MIB)
    page = markdown(found, judged(found))
    assert "| s3: read | s3fs | 1,078 MiB/s | 0.95× | 0.50 s | 20 MiB |" in page
    assert "All 7 targets met." in page


def test_the_best_of_the_rounds_with_the_most_memory() -> None:
    one = better(Seen(2.0, 1.0, 5), Seen(1.0, 0.5, 3))
    assert one == Seen(1.0, 0.5, 5)
    ours, native, peer = (Case("s3", "read", who) for who in ("ours", "native", "peer"))
    best = {ours: Seen(1.0, 0, 0), native: Seen(1.9, 0, 0), peer: Seen(2.1, 0, 0)}
    assert [lags(case, best) for case in best] == [False, False, True]
    assert not lags(Case("s3", "write", "peer"), best)


def test_a_quick_run(tmp_path: Path) -> None:
    """On a folder: servers are the other tests' matter."""
    printed = quick("storage.py", tmp_path, "--only", "local")
    assert "local, round 1, list: " in printed
    assert "open()" in (tmp_path / "storage.md").read_text(encoding="utf-8")
