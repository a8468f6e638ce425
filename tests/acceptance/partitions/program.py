"""A process that extracts in rounds, like a worker, until no partition is left.

main([url, store as JSON, name, gate]): if the gate is a path, an extraction writes half of its data and waits for that file.
"""

from __future__ import annotations

import json
import os
import secrets
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from redrive import App, RetryPolicy
from redrive.partitions import Partition, Sink, not_null, row_count, schema, unique
from redrive.partitions.work.runner import ControlPlaneTask
from tests.partition_runner import SteppedRunner

CUSTOMERS = ("acme", "Globex, Inc/é")
SINCE, UNTIL = "2026-01-30", "2026-01-31"
ROWS = 700
"""Rows of a partition: about 700 KB, written in three pieces."""
AT_ONCE = RetryPolicy(max_attempts=6, backoff_base=0.0, backoff_max=0.0, jitter=0.0)


def rows_of(partition: Partition) -> Iterator[dict[str, Any]]:
    """Yield the data of the source, which is constant."""
    for number in range(ROWS):
        yield {"id": number, "customer": partition.customer_id, "day": partition.logical_date, "text": "x" * 1000}


def build_app(url: str, store: dict[str, Any], gate: Path | None = None) -> App:
    """The app, with one dataset."""
    app = App(url, stores={"raw": store})

    @app.dataset(
        "crm", "orders", raw="raw", customers=CUSTOMERS, max_age=None, retry=AT_ONCE,
        checks=[row_count(min=1), unique("id"), not_null("id"), schema({"id": int})],
    )  # fmt: skip
    def orders(partition: Partition, out: Sink) -> None:
        def rows() -> Iterator[dict[str, Any]]:
            for row in rows_of(partition):
                if row["id"] == ROWS // 2 and gate is not None:
                    print("half", out.run_id, flush=True)
                    while not gate.exists():
                        time.sleep(0.01)
                yield row

        out.rows(rows())

    return app


def _round(app: App, tending: ControlPlaneTask, runner: SteppedRunner) -> bool:
    """Run the background tasks like a worker, and repeat failed ones. Return True if no work is left."""
    try:
        now = app.ledger.now()
        tending.do(now)
        return runner.turn(now) > 0 and not runner.running
    except Exception:
        traceback.print_exc()
        return False


def main(arguments: Sequence[str]) -> int:
    """Extract due partitions until none is left."""
    url, store, name, *rest = arguments
    with build_app(url, json.loads(store), Path(rest[0]) if rest else None) as app:
        worker = f"{name}-{os.getpid()}-{secrets.token_hex(3)}"
        runner = SteppedRunner(app.ledger, list(app.datasets), worker=worker, max_running=2, lease_seconds=3600)
        tending = ControlPlaneTask(app.ledger, list(app.datasets))
        print("begins", worker, os.getpid(), flush=True)
        while not _round(app, tending, runner):
            runner.wait(0.2)
        runner.close()
    return 0
