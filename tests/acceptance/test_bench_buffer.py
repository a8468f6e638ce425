"""The send buffer part of `make bench-clients` runs. Rates are not asserted, because machines are noisy. Bytes are."""

from __future__ import annotations

from pathlib import Path

from benchmarks.clients.waiting import memory
from tests.acceptance.bench import quick


def test_a_queued_item_costs_less_than_a_kilobyte() -> None:
    held = memory(1_000)
    assert 100 < held["SendBuffer"] <= 1024
    assert held["SendBuffer"] < 1.5 * held["batch loop by hand"]


def test_a_quick_run_of_the_buffer_benchmark_succeeds(tmp_path: Path) -> None:
    printed = quick("clients", tmp_path, "--only", "buffer")
    for words in ("SendBuffer, 1 waiter: rate of a batch loop by hand", "one RPC for each item", "beside the item"):
        assert words in printed
