"""`make bench-storage` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

from pathlib import Path
from typing import Any

from benchmarks.storage_suite.hand import Hand
from benchmarks.storage_suite.report import MIB, Case, Results, Seen, judged, markdown, middle
from benchmarks.storage_suite.runner import ACTS, FULL, lags, tried
from benchmarks.target import summary_line
from tests.acceptance.bench import quick

SIZE = {"write": 1024 * MIB, "read": 1024 * MIB, "list": 10_000}


def results(share: float, grew: float) -> Results:
    took = {"ours": 1.0, "native": share, "peer": 3.0}
    cases = {Case("s3", act, who): [Seen(SIZE[act], seconds, 0.5, grew)] * 3 for act in ACTS for who, seconds in took.items()}
    return Results(1024 * MIB, 10_000, 3, True, cases)


def test_targets_are_met_or_missed() -> None:
    assert summary_line(judged(results(0.95, 20 * MIB))) == "all 7 targets met"
    missed = summary_line(judged(results(0.8, 100 * MIB)))
    assert missed.startswith("4 of 7 targets missed: s3: write, to s3fs (missed); ")
    assert missed.endswith("; s3: memory (missed)")


def test_the_page_is_written() -> None:
    found = results(0.95, 20 * MIB)
    page = markdown(found, judged(found))
    assert "| s3: read | s3fs | 1,078 MiB/s | 0.95× | 0.50 s | 20 MiB |" in page
    assert "All 7 targets met." in page


def test_ratios_compare_runs_of_the_same_round() -> None:
    """A busy moment that hits both is nobody's fault; the table has the turn in the middle, with the most memory of all."""
    ours, native = Case("s3", "read", "ours"), Case("s3", "read", "native")
    slow, usual, quick = Seen(MIB, 4.0, 2.0, 7 * MIB), Seen(MIB, 2.0, 1.0, 5 * MIB), Seen(MIB, 1.0, 0.5, 3 * MIB)
    found = Results(MIB, 1, 3, False, {ours: [slow, usual, quick], native: [slow, slow, usual]})
    assert str(found.slower(native)) == "2 (1–2)"
    assert middle([slow, quick, usual]) is usual
    assert "| s3: read | Redrive | 0.5 MiB/s |  | 1.00 s | 7 MiB |" in markdown(found, judged(found))


def test_a_case_twice_as_slow_is_not_measured_again() -> None:
    ours, native, peer = (Case("s3", "read", who) for who in ("ours", "native", "peer"))
    seen = {ours: [Seen(10, 1.0, 0, 0)], native: [Seen(10, 1.9, 0, 0)], peer: [Seen(10, 2.1, 0, 0)]}
    assert [lags(case, seen) for case in seen] == [False, False, True]
    writes = Case("s3", "write", "peer")
    assert not lags(writes, {**seen, writes: []})


class Paced(Hand):
    """Moves so many bytes a second, says what it was asked for, and does nothing."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.asked: list[tuple[str, int]] = []

    def do(self, act: str, path: str, size: int) -> dict[str, Any]:
        self.asked.append((path, size))
        return {"done": size, "seconds": size / self.rate, "cpu": 0.0, "grew": 0.0}


def test_a_slow_peer_gets_a_smaller_file() -> None:
    quick, slow, ours = Paced(100 * MIB), Paced(0.8 * MIB), Paced(0.8 * MIB)
    read = Case("s3", "read", "peer")
    seen = tried(quick, read, FULL, "", [])
    assert tried(quick, read, FULL, "", [seen]).done == FULL.size
    assert quick.asked == [("small", FULL.small), ("ours-big", FULL.size), ("ours-big", FULL.size)]
    seen = tried(slow, read, FULL, "", [])
    assert seen.said("read") == "0.8 MiB/s"
    assert tried(slow, read, FULL, "", [seen]).done == FULL.small
    assert slow.asked == [("small", FULL.small)] * 2
    assert tried(ours, Case("s3", "write", "ours"), FULL, "", []).done == FULL.size  # whatever it takes
    cases = {**results(0.95, 0).cases, read: [seen]}
    found = Results(FULL.size, FULL.count, FULL.rounds, True, cases)
    assert "| s3: read | remote-store (16 MiB) | 0.8 MiB/s | 1280× |" in markdown(found, judged(found))


def test_a_quick_run_of_the_storage_benchmark_succeeds(tmp_path: Path) -> None:
    """On a folder: servers are the other tests' matter."""
    printed = quick("storage.py", tmp_path, "--only", "local")
    assert "local, round 1, list: " in printed
    assert "open()" in (tmp_path / "storage.md").read_text(encoding="utf-8")
    assert "local: open()" in (tmp_path / "storage.svg").read_text(encoding="utf-8")
