"""The send buffer's half of `make bench-clients` works. Rates are not asserted here: machines are noisy. Bytes are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.clients.waiting import memory

ROOT = Path(__file__).resolve().parents[2]


def test_an_item_that_waits_costs_less_than_a_kilobyte() -> None:
    held = memory(1_000)
    assert 100 < held["SendBuffer"] <= 1024
    assert held["SendBuffer"] < 1.5 * held["batch loop by hand"]


def test_a_quick_run() -> None:
    command = [sys.executable, "-m", "benchmarks.clients", "--quick", "--only", "buffer"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == ""
    for words in ("SendBuffer, 1 waiter: rate of a batch loop by hand", "one RPC for each item", "beside the item"):
        assert words in done.stdout
