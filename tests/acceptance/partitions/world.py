"""Shared by the tests of a worker with datasets: options, backfills, and waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import func, select

from redrive import App, RetryPolicy
from redrive.ledger.db.partition_tables import work
from redrive.partitions import row_count
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.queries import PartitionQueries

AT_ONCE = RetryPolicy(max_attempts=3, backoff_base=0.0, backoff_max=0.0, jitter=0.0)
CUSTOMERS = ("acme", "globex", "initech")
SINCE, UNTIL = "2026-01-01", "2026-01-04"


def dataset_options(**more: Any) -> dict[str, Any]:
    return {"raw": "raw", "customers": CUSTOMERS, "checks": [row_count(min=1)], "retry": AT_ONCE, "max_age": None, **more}


def backfill(app: App, *queries: str, customers: tuple[str, ...] = CUSTOMERS, until: str = UNTIL) -> None:
    control = ControlPlane(app.ledger, [one.limits for one in app.datasets])
    for query in queries:
        control.backfill(Grid.of("crm", query, customers, SINCE, until), actor="ann", because="new")


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def work_counts(app: App) -> tuple[int, int]:
    """Return the number of queued and of leased partitions."""
    is_leased = work.c.lease_until.is_not(None)
    with app.ledger.reading() as connection:
        rows = connection.execute(select(is_leased, func.count()).group_by(is_leased))
        counts = {bool(leased): count for leased, count in rows}
    return counts.get(False, 0), counts.get(True, 0)


def counts(app: App, query: str = "orders") -> dict[str, int]:
    found: dict[str, int] = {shade: n for shade, n in PartitionQueries(app.ledger).counts().get(("crm", query), {}).items() if n}
    return found
