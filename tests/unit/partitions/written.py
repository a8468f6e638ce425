"""Runs for tests, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timezone
from typing import Any

from redrive.partitions import Partition, Raw
from redrive.partitions.raw.files import load_raw
from redrive.partitions.raw.writer import RunWriter
from redrive.storage import Store
from redrive.storage.memory import Memory

KEY = Partition("crm", "acme", "orders", date(2026, 1, 31))
NOW = datetime(2026, 2, 1, 3, tzinfo=timezone.utc)


def written_run(
    rows: Iterable[Mapping[str, Any]], *, previous: Raw | None = None, run_id: str = "r-1", at: datetime = NOW
) -> Raw:
    """A run that wrote these rows."""
    store = Store(Memory("m"))
    run = RunWriter(store, KEY, run_id)
    run.sink.rows(rows)
    run.finish(at)
    return load_raw(store, KEY, run_id, previous=lambda: previous)
