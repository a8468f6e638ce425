"""A worker that stops: running extractions end, or are released."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from sqlalchemy import update

from redrive import App
from redrive.ledger.db.tables import worker as worker_table
from redrive.ops import Operator
from redrive.partitions import Partition, Sink
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.queries import PartitionQueries
from tests.acceptance.partitions.world import SINCE, backfill, counts, dataset_options, until, work_counts


def slow_orders(app: App) -> tuple[threading.Event, threading.Event]:
    """An extraction with two events: it sets the first when it has begun, and waits for the second."""
    began, gate = threading.Event(), threading.Event()

    @app.dataset("crm", "orders", **dataset_options())
    def orders(partition: Partition, out: Sink) -> None:
        began.set()
        gate.wait(30)
        out.rows([{"n": 1}])

    return began, gate


def test_a_stopping_worker_releases_unfinished_extractions(app: App) -> None:
    began, gate = slow_orders(app)

    @app.dataset("crm", "visits", **dataset_options())
    async def visits(partition: Partition, out: Sink) -> None:
        began.set()
        await asyncio.sleep(30)

    backfill(app, "orders", "visits", customers=("acme",), until=SINCE)
    worker = app.worker(threads=2, drain=0.05)
    with worker:
        until(lambda: work_counts(app)[1] == 2)
        began.wait(30)
    gate.set()
    assert work_counts(app)[1] == 0
    for query in ("orders", "visits"):
        (run,) = PartitionQueries(app.ledger).history(Partition("crm", "acme", query, SINCE))  # type: ignore[arg-type]
        assert (run.state, run.note) == ("returned", "stopped")
        facts = PartitionQueries(app.ledger).get(Partition("crm", "acme", query, SINCE))  # type: ignore[arg-type]
        assert facts is not None
        assert (facts.attempt_count, facts.status) == (0, "pending")


@pytest.mark.req("O-1")
def test_running_extractions_are_listed_with_their_worker(app: App) -> None:
    began, gate = slow_orders(app)

    backfill(app, "orders", customers=("acme",), until=SINCE)
    operator = Operator(app, actor="ann")
    with app.worker(threads=1) as worker:
        assert began.wait(30)
        until(lambda: [one.name for one in operator.workers.find().workers] == [worker.name])
        (line,) = operator.workers.find().workers
        assert [one.partition for one in line.partitions] == [f"crm/acme/orders/{SINCE}"]
        (run,) = PartitionQueries(app.ledger).history(Partition("crm", "acme", "orders", SINCE))  # type: ignore[arg-type]
        assert run.worker == worker.name
        gate.set()
    assert counts(app) == {"success": 1}


def test_a_stopping_worker_waits_for_extractions(app: App) -> None:
    began, gate = slow_orders(app)

    backfill(app, "orders", customers=("acme",), until=SINCE)
    with app.worker(threads=1) as worker:
        assert began.wait(30)
        worker.stop()
        gate.set()
    assert counts(app) == {"success": 1}


@pytest.mark.req("P-6")
def test_partitions_of_a_killed_local_process_are_recovered_immediately(app: App) -> None:
    @app.dataset("crm", "orders", **dataset_options(concurrency=1))
    def orders(partition: Partition, out: Sink) -> None:
        out.rows([{"n": 1}])

    backfill(app, "orders", customers=("acme",), until=SINCE)
    (extraction,) = app.datasets
    ControlPlane(app.ledger, [extraction.limits]).claim(1, worker="killed", lease=3600)
    program = "from redrive.worker.processes.identity import process_identity; print(process_identity())"
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    app.ledger.maintenance.heartbeat("killed", {"process": killed.stdout.strip()})
    with app.ledger.begin() as tx:
        tx.execute(update(worker_table).values(seen_at=app.ledger.now() - timedelta(hours=1)))
    with app.worker(threads=1):
        until(lambda: counts(app) == {"success": 1})
    states = [one.state for one in PartitionQueries(app.ledger).history(Partition("crm", "acme", "orders", SINCE))]  # type: ignore[arg-type]
    assert states == ["accepted", "lost"]
