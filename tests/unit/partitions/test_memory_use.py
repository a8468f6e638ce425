"""Memory does not grow with the size of a run: written, validated and read."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from redrive.partitions import not_null, row_count, unique
from redrive.partitions.datasets.validator import Validator
from redrive.partitions.raw.files import load_raw
from redrive.partitions.raw.writer import RunWriter
from redrive.storage import Store
from redrive.storage.local import Local

from .written import KEY, NOW

ROWS = 4_000
TEXT = "x" * 5_000
MIB = 1024 * 1024


def rows() -> Iterator[dict[str, Any]]:
    for number in range(ROWS):  # 20 MB
        yield {"id": number, "text": TEXT}


def test_memory_does_not_depend_on_the_size_of_a_run(tmp_path: Path) -> None:
    store = Store(Local(root=str(tmp_path)))
    gc.collect()
    tracemalloc.start()
    try:
        run = RunWriter(store, KEY, "r-1")
        run.sink.rows(rows())
        assert sum(file.size for file in run.finish(NOW).files) > 20 * MIB * 0.9
        found = load_raw(store, KEY, "r-1")
        checks = [row_count(min=ROWS), unique("id"), not_null("text")]
        assert Validator("v", "1", checks).validate(found).decision == "accepted"
        found.check_digests()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB, f"{peak / MIB:.1f} MiB"
