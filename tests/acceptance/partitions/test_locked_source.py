"""Another process has locked the row of a source: partitions wait, jobs do not."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event

import psycopg
import pytest

from redrive import App
from redrive.ledger import Lease, open_ledger
from redrive.partitions import Partition, Sink
from redrive.partitions.work.runner import PartitionRunner
from redrive.worker.worker import Worker
from tests.acceptance.partitions.world import backfill, counts, dataset_options
from tests.conformance.worker.world import kind, record_log, submit, until, wait_for_jobs

LEASE_SECONDS = 2.0
LOCKED_SECONDS = 1.5 * LEASE_SECONDS


@pytest.mark.req("L-3")
def test_a_locked_source_row_costs_no_job_its_lease(postgres_ledger: str, tmp_path: Path) -> None:
    stores = {"raw": {"type": "local", "options": {"root": str(tmp_path / "raw")}}}
    started: list[str] = []
    may_end = Event()

    def run(lease: Lease) -> None:
        started.append(lease.key)
        may_end.wait(60)

    with (
        App(postgres_ledger, stores=stores) as app,
        open_ledger(postgres_ledger) as other_worker,
        psycopg.connect(postgres_ledger) as holder,
        record_log() as records,
    ):

        @app.dataset("crm", "orders", **dataset_options())
        def orders(partition: Partition, out: Sink) -> None:
            out.rows([{"n": 1}])

        backfill(app, "orders")
        job_ids = submit(app.ledger, "mail", 2)
        holder.execute("SELECT * FROM redrive_partition_source WHERE source = 'crm' FOR UPDATE")
        runner = PartitionRunner(list(app.datasets), max_running=4)
        with Worker(app.ledger, [kind("mail", run)], lease=LEASE_SECONDS, work_sources=[runner]):
            until(lambda: len(started) == 2)
            locked_until = time.monotonic() + LOCKED_SECONDS
            while time.monotonic() < locked_until:
                assert other_worker.reap() == [], "the leases of running jobs are renewed"
                time.sleep(0.05)
            holder.rollback()
            until(lambda: counts(app) == {"success": 12})
            may_end.set()
            jobs = wait_for_jobs(app.ledger, *job_ids)
    assert [(job.state, job.attempts) for job in jobs] == [("done", 1)] * 2
    assert len(started) == 2, "each job runs once"
    failures = [record for record in records if record.kind == "chore_failed"]
    assert {record.fields["operation"] for record in failures} == {"extractions"}
    assert all("lock timeout" in record.fields["error"] for record in failures)
