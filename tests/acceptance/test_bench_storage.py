"""`make bench-storage` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import pytest

from benchmarks.storage_suite import runner
from benchmarks.storage_suite.process import SubjectProcess
from benchmarks.storage_suite.report import MIB, Case, Results, Sample, markdown, median_sample, targets
from benchmarks.storage_suite.runner import FULL, OPERATIONS, Effort, is_slow, measure_case
from benchmarks.target import summary_line
from tests.acceptance.bench import quick

SIZE = {"write": 1024 * MIB, "read": 1024 * MIB, "list": 10_000}


def results(share: float, growth: float) -> Results:
    seconds = {"ours": 1.0, "native": share, "peer": 3.0}
    cases = {
        Case("s3", operation, role): [Sample(SIZE[operation], taken, 0.5, growth)] * 3
        for operation in OPERATIONS
        for role, taken in seconds.items()
    }
    return Results(1024 * MIB, 10_000, 3, True, cases)


def test_targets_are_met_or_missed() -> None:
    assert summary_line(targets(results(0.95, 20 * MIB))) == "all 7 targets met"
    missed = summary_line(targets(results(0.8, 100 * MIB)))
    assert missed.startswith("4 of 7 targets missed: s3 write, vs s3fs (missed); ")
    assert missed.endswith("; s3 memory (missed)")


def test_the_page_is_written() -> None:
    run = results(0.95, 20 * MIB)
    page = markdown(run, targets(run))
    assert "| s3 read | s3fs | 1,078 MiB/s | 0.95× | 0.50 s | 20 MiB |" in page
    assert "All 7 targets met." in page


def test_ratios_compare_runs_of_the_same_round() -> None:
    """Noise affects both libraries of a round. The table has the median sample, with the maximum memory."""
    ours, native = Case("s3", "read", "ours"), Case("s3", "read", "native")
    slow, usual, quick = Sample(MIB, 4.0, 2.0, 7 * MIB), Sample(MIB, 2.0, 1.0, 5 * MIB), Sample(MIB, 1.0, 0.5, 3 * MIB)
    run = Results(MIB, 1, 3, False, {ours: [slow, usual, quick], native: [slow, slow, usual]})
    assert str(run.speed_up(native)) == "2 (1–2)"
    assert median_sample([slow, quick, usual]) is usual
    assert "| s3 read | Redrive | 0.5 MiB/s |  | 1.00 s | 7 MiB |" in markdown(run, targets(run))


def test_a_case_that_is_slow_in_two_rounds_is_not_measured_again() -> None:
    ours, native, peer = (Case("s3", "read", role) for role in ("ours", "native", "peer"))
    samples = {ours: [Sample(10, 1.0, 0, 0)], native: [Sample(10, 3.9, 0, 0)] * 2, peer: [Sample(10, 4.1, 0, 0)] * 2}
    assert [is_slow(case, samples) for case in samples] == [False, False, True]
    first_round = {**samples, peer: [Sample(10, 90.0, 0, 0)]}
    assert not is_slow(peer, first_round)
    writes = Case("s3", "write", "peer")
    assert not is_slow(writes, {**samples, writes: []})


def test_a_peer_that_fails_keeps_its_earlier_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    writes = 0

    class Process(PacedProcess):
        def __init__(self, role: str, backend: str, address: str) -> None:
            super().__init__(10 * MIB)
            self.role = role

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def run(self, operation: str, path: str, size: int) -> dict[str, Any]:
            nonlocal writes
            if self.role == "peer" and operation == "write" and size == effort.size:
                writes += 1
                if writes == 2:
                    raise RuntimeError("peer azure exited:\nAlreadyExists: peer-big\n")
            return super().run(operation, path, size)

    effort = Effort(32 * MIB, MIB, 3, 3, 60.0)
    monkeypatch.setattr(runner, "SubjectProcess", Process)
    monkeypatch.setattr(runner, "start_server", lambda backend: nullcontext(""))
    monkeypatch.setattr(runner, "fill", lambda backend, address, count: None)
    lines: list[str] = []
    measured = runner.run("azure", effort, ("ours", "native", "peer"), lines.append)
    assert {case.role: len(samples) for case, samples in measured.items() if case.operation == "write"} == {
        "ours": 3,
        "native": 3,
        "peer": 1,
    }
    assert "azure, round 2, write: remote-store failed: AlreadyExists: peer-big" in lines


class PacedProcess(SubjectProcess):
    """Simulates a rate and records the requests."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.requests: list[tuple[str, int]] = []

    def run(self, operation: str, path: str, size: int) -> dict[str, Any]:
        self.requests.append((path, size))
        return {"done": size, "seconds": size / self.rate, "cpu": 0.0, "growth": 0.0}


def test_a_slow_peer_gets_a_smaller_file() -> None:
    quick, slow, ours = PacedProcess(100 * MIB), PacedProcess(0.8 * MIB), PacedProcess(0.8 * MIB)
    read = Case("s3", "read", "peer")
    sample = measure_case(quick, read, FULL, "", [])
    assert measure_case(quick, read, FULL, "", [sample]).done == FULL.size
    assert quick.requests == [("small", FULL.small), ("ours-big", FULL.size), ("ours-big", FULL.size)]
    sample = measure_case(slow, read, FULL, "", [])
    assert sample.format_rate("read") == "0.8 MiB/s"
    assert measure_case(slow, read, FULL, "", [sample]).done == FULL.small
    assert slow.requests == [("small", FULL.small)] * 2
    assert measure_case(ours, Case("s3", "write", "ours"), FULL, "", []).done == FULL.size  # regardless of the time
    cases = {**results(0.95, 0).cases, read: [sample]}
    run = Results(FULL.size, FULL.count, FULL.rounds, True, cases)
    assert "| s3 read | remote-store (16 MiB) | 0.8 MiB/s | 1280× |" in markdown(run, targets(run))


def test_a_quick_run_of_the_storage_benchmark_succeeds(tmp_path: Path) -> None:
    """Measure a local folder. Other tests cover the servers."""
    printed = quick("storage.py", tmp_path, "--only", "local")
    assert "local, round 1, list: " in printed
    assert "open()" in (tmp_path / "storage.md").read_text(encoding="utf-8")
    assert "local, open()" in (tmp_path / "storage.svg").read_text(encoding="utf-8")
