"""The send buffer part of `make bench-clients` runs. Rates are not asserted, because machines are noisy. Bytes are."""

from __future__ import annotations

from pathlib import Path

from benchmarks.clients.memory import measure_memory
from tests.acceptance.bench import quick


def test_a_queued_item_costs_less_than_a_kilobyte() -> None:
    size = measure_memory(1_000)
    assert 100 < size["SendBuffer"] <= 1024
    assert size["SendBuffer"] < 1.5 * size["handwritten batch loop"]


def test_a_quick_run_of_the_buffer_benchmark_succeeds(tmp_path: Path) -> None:
    printed = quick("clients", tmp_path, "--only", "buffer")
    for words in ("SendBuffer, 1 waiter, vs handwritten batch loop", "one RPC per item", "memory per queued item"):
        assert words in printed
