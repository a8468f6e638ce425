"""Jobs through the whole worker, on each database: sync, async and in a transaction, and the values of `current()`."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Connection, text

from redrive import correlate, current, retry
from redrive.ledger import Lease, Ledger, NewJob
from redrive.worker import dispatcher, turn
from redrive.worker.worker import Worker

from .world import EXECUTIONS, for_execution, kind, record_log, submit, until, wait_for_jobs


@pytest.mark.req("W-6")
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_jobs_run_once_and_their_results_are_stored(ledger: Ledger, execution: str) -> None:
    ran: list[int] = []

    def work(lease: Lease) -> bytes:
        ran.append(lease.job_id)
        return lease.key.encode()

    ids = submit(ledger, "mail", 50)
    with Worker(ledger, [kind("mail", for_execution(execution, work), execution)]) as worker:
        jobs = wait_for_jobs(ledger, *ids)
        until(lambda: worker.status.done == 50)
    assert sorted(ran) == sorted(ids)
    assert [(job.state, job.attempts, job.result) for job in jobs] == [("done", 1, job.key.encode()) for job in jobs]
    assert worker.status.state == "ended"


def test_a_job_submitted_to_an_idle_worker_starts_immediately(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "POLL_SECONDS", 600.0)
    monkeypatch.setattr(turn, "POLL_SECONDS", 600.0)
    started = threading.Event()
    with Worker(ledger, [kind("mail", lambda lease: started.set())]):
        time.sleep(0.3)
        submit(ledger, "mail")
        assert started.wait(60)


def test_a_delayed_job_starts_when_it_is_due(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "POLL_SECONDS", 600.0)
    monkeypatch.setattr(turn, "POLL_SECONDS", 600.0)
    moments: list[float] = []
    with Worker(ledger, [kind("mail", lambda lease: moments.append(time.monotonic()))]):
        time.sleep(0.2)
        began = time.monotonic()
        submit(ledger, "mail", delay=0.8)
        until(lambda: bool(moments))
    assert 0.75 <= moments[0] - began < 30


@pytest.mark.req("W-3", "W-2")
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_failure_is_counted_stored_logged_and_retried(ledger: Ledger, execution: str) -> None:
    seen: list[tuple[int, str]] = []

    def work(lease: Lease) -> None:
        job = ledger.get(lease.job_id)
        assert job is not None
        seen.append((lease.attempt, job.shown))
        if lease.attempt < 3:
            raise ConnectionError("no answer, token=hunter2")

    with record_log() as records, Worker(ledger, [kind("mail", for_execution(execution, work), execution)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "mail"))
        until(lambda: any(record.kind == "recovered" for record in records))
    assert seen == [(1, "running"), (2, "running"), (3, "running")]
    assert (job.state, job.attempts) == ("done", 3)
    attempts = ledger.attempts(job.id)
    assert [(one.number, one.outcome) for one in attempts] == [(1, "failed"), (2, "failed")]
    assert all("no answer" in (one.error or "") and "hunter2" not in (one.error or "") for one in attempts)
    told = [(record.kind, record.fields["attempt"], record.fields["max_attempts"]) for record in records]
    assert told == [("retry", 1, 3), ("retry", 2, 3), ("recovered", 3, 3)]
    first = records[0].fields
    assert (first["operation"], first["idempotency_key"], first["error_class"]) == ("mail", job.key, "ConnectionError")
    assert (first["job_id"], first["retryable"]) == (str(job.id), True)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_job_sees_its_attempt_key_and_id(ledger: Ledger, execution: str) -> None:
    found: list[Any] = []

    def work(lease: Lease) -> None:
        here = current()
        inside = retry(lambda: current().key)()
        found.append((here.number, here.max_attempts, here.operation, here.job_id, str(here.key), str(inside), here.remaining))
        ledger.submit(NewJob("later", lease.key))

    deadline = datetime.now(timezone.utc) + timedelta(seconds=60)
    with correlate(request_id="r-1", mission_id="m-1"):
        (job_id,) = submit(ledger, "mail", deadline=deadline)
    with correlate(request_id="of the worker"), Worker(ledger, [kind("mail", for_execution(execution, work), execution)]):
        wait_for_jobs(ledger, job_id)
    ((*here, remaining),) = found
    key = "shop:ann:0:mail:v1"
    assert here == [1, 3, "mail", str(job_id), key, key]
    assert 50 < remaining <= 60
    later = ledger.find("later", key)
    assert later is not None
    assert later.ids == {"request_id": "r-1", "mission_id": "m-1"}


def test_a_job_without_a_structured_key_gets_one(ledger: Ledger) -> None:
    found: list[Any] = []
    ledger.submit(NewJob("mail", "6f1c"))
    with Worker(ledger, [kind("mail", lambda lease: found.append(current().key))]):
        until(lambda: bool(found))
    assert str(found[0]) == "job::6f1c:mail:v1"


def test_an_expired_deadline_is_a_dead_letter_and_nothing_runs(ledger: Ledger) -> None:
    ran: list[int] = []
    with Worker(ledger, [kind("mail", lambda lease: ran.append(1))]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "mail", deadline=datetime.now(timezone.utc) - timedelta(seconds=1)))
    assert (job.shown, job.reason, ran) == ("dlq", "deadline", [])


def test_an_async_attempt_is_cancelled_at_its_timeout(ledger: Ledger) -> None:
    cancelled: list[int] = []

    async def work(lease: Lease) -> None:
        if lease.attempt == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(lease.attempt)
                raise

    with Worker(ledger, [kind("mail", work, "async", attempt_timeout=0.1)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "mail"))
    assert (job.state, job.attempts, cancelled) == ("done", 2, [1])
    assert "AttemptTimeout" in (ledger.attempts(job.id)[0].error or "")


def test_a_sync_attempt_sees_its_timeout_and_is_logged_as_overdue(ledger: Ledger) -> None:
    gate, found = threading.Event(), list[Any]()

    def work(lease: Lease) -> None:
        found.append(current().remaining)
        gate.wait(60)

    with Worker(ledger, [kind("mail", work, attempt_timeout=0.1)], lease=1) as worker:
        (job_id,) = submit(ledger, "mail")
        until(lambda: worker.status.overdue == 1)
        gate.set()
        (job,) = wait_for_jobs(ledger, job_id)
    assert 0 < found[0] <= 0.1
    assert (job.state, job.attempts) == ("done", 1)


def test_a_function_that_blocks_does_not_lose_its_lease(ledger: Ledger) -> None:
    with Worker(ledger, [kind("mail", lambda lease: time.sleep(2.0))], lease=0.5) as worker:
        (job,) = wait_for_jobs(ledger, *submit(ledger, "mail"))
    assert (job.state, job.attempts, job.fence, job.crashes) == ("done", 1, 1, 0)
    assert worker.status.late == 0


def test_connections_held_by_jobs_do_not_block_the_ledger_thread(shared: Ledger, url: str) -> None:
    many = 1 if url.startswith("sqlite") else 10

    def work(lease: Lease) -> None:
        with shared.begin():
            time.sleep(1.2)

    ids = submit(shared, "mail", many)
    with Worker(shared, [kind("mail", work)], threads=10, lease=0.8) as worker:
        jobs = wait_for_jobs(shared, *ids)
    assert {(job.state, job.fence) for job in jobs} == {("done", 1)}
    assert worker.status.late == 0


@pytest.mark.req("W-4")
def test_writes_in_a_transaction_commit_with_the_end_of_their_job(ledger: Ledger) -> None:
    with ledger.begin() as tx:
        tx.execute(text("CREATE TABLE effect (key text NOT NULL)"))

    def work(connection: Connection, lease: Lease) -> bytes:
        connection.execute(text("INSERT INTO effect VALUES (:key)"), {"key": lease.key})
        if lease.attempt == 1:
            raise ConnectionError("after the insert")
        return b"ok"

    ids = submit(ledger, "pay", 10)
    with Worker(ledger, [kind("pay", work, "transaction", parks_on_outage=False)]):
        jobs = wait_for_jobs(ledger, *ids)
    assert {(job.state, job.attempts, job.result) for job in jobs} == {("done", 2, b"ok")}
    with ledger.begin() as tx:
        assert sorted(row[0] for row in tx.execute(text("SELECT key FROM effect"))) == sorted(job.key for job in jobs)


def test_unregistered_job_types_are_skipped(ledger: Ledger) -> None:
    ids = submit(ledger, "unknown", 3)
    with Worker(ledger, [kind("mail", lambda lease: None)]):
        wait_for_jobs(ledger, *submit(ledger, "mail"))
    assert {job.shown for one in ids if (job := ledger.get(one)) is not None} == {"queued"}


def test_job_types_take_turns(ledger: Ledger) -> None:
    order: list[str] = []
    submit(ledger, "first", 200)
    submit(ledger, "second", 5)

    def work(lease: Lease) -> None:
        order.append(lease.kind)
        time.sleep(0.002)

    with Worker(ledger, [kind("first", work), kind("second", work)], threads=2):
        until(lambda: len(order) == 205)
    assert "second" in order[:50]


class SweepTask:
    """A background task that fails at first."""

    name = "sweeping"
    every = 0.05

    def __init__(self) -> None:
        self.done: list[datetime] = []

    def do(self, now: datetime, /) -> None:
        self.done.append(now)
        if len(self.done) == 1:
            raise OSError("not yet")


def test_background_tasks_run_repeatedly_even_if_they_raise(ledger: Ledger) -> None:
    chore = SweepTask()
    with record_log() as records, Worker(ledger, [kind("mail", lambda lease: None)], background_tasks=[chore]):
        until(lambda: len(chore.done) > 3)
    assert [record.kind for record in records] == ["chore_failed"]
    assert abs((chore.done[0] - datetime.now(timezone.utc)).total_seconds()) < 30


def test_an_immediate_stop_releases_running_jobs_uncharged(ledger: Ledger) -> None:
    gate, begun = threading.Event(), threading.Event()

    def work(lease: Lease) -> None:
        begun.set()
        gate.wait(60)

    (job_id,) = submit(ledger, "mail")
    worker = Worker(ledger, [kind("mail", work)]).start()
    assert begun.wait(60)
    worker.stop(now=True)
    worker.close()
    gate.set()
    job = ledger.get(job_id)
    assert job is not None
    assert (job.shown, job.attempts, job.crashes, job.reason) == ("retry_wait", 0, 0, "released")
    assert [(one.ended_at is not None, one.name) for one in ledger.workers()] == [(True, worker.name)]


def test_a_worker_can_be_started_only_once(ledger: Ledger) -> None:
    with Worker(ledger, [kind("mail", lambda lease: None)]) as worker, pytest.raises(RuntimeError, match="create a new one"):
        worker.start()
