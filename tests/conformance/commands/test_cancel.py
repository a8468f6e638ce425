"""Cancelled jobs with real workers, on SQLite, Postgres and Temporal."""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection

from redrive import App, Job, RetryPolicy, Stop, current, errors
from redrive.journal import subscribe
from redrive.worker import maintenance

SOON = 60.0
QUICK = RetryPolicy(max_attempts=3, backoff_base=0.02, backoff_max=0.05, jitter=0)


@pytest.fixture(autouse=True)
def frequent_reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers read cancel requests often, except in tests of that interval."""
    if "within_seconds" not in request.node.name:
        monkeypatch.setattr(maintenance, "REFRESH_CONTROLS_SECONDS", 0.05)


def wait_for(condition: threading.Event) -> None:
    assert condition.wait(SOON)


def final_state(job: Job[None]) -> str:
    end = time.monotonic() + SOON
    while (state := job.state) not in ("done", "cancelled", "dlq"):
        assert time.monotonic() < end, state
        time.sleep(0.005)
    return state


@pytest.mark.req("Q-2")
def test_a_queued_job_is_cancelled_and_its_key_is_free(app: App) -> None:
    @app.command("mail.send", key="mail:{to}:1:send:v1")
    def send(to: str) -> str:
        return to

    job = send.submit("ann")
    assert job.cancel(because="wrong address")
    assert job.state == "cancelled"
    assert not job.cancel()
    again = send.submit("ann")
    assert again.created
    with app.worker():
        assert again.result(SOON) == "ann"
    assert job.state == "cancelled", "a handle stays at its job"
    with pytest.raises(errors.Cancelled, match=f"mail.send job {re.escape(job.id)} was cancelled"):
        job.result(1)
    assert not again.cancel(), "it is done"


@pytest.mark.req("Q-2")
def test_a_running_async_job_is_cancelled_within_seconds(app: App) -> None:
    started, may_end, cleaned = threading.Event(), threading.Event(), threading.Event()

    @app.command("slow.wait", retry=QUICK)
    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(SOON)
        finally:
            await asyncio.to_thread(may_end.wait, SOON)
            cleaned.set()

    with app.worker() as worker:
        job = wait.submit()
        wait_for(started)
        since = time.monotonic()
        assert job.cancel()
        assert job.state == "running"
        may_end.set()
        with pytest.raises(errors.Cancelled):
            job.result(SOON)
        assert time.monotonic() - since < 10
        assert cleaned.is_set()
        assert worker.status.cancelled == 1
    assert job.attempts == 1


@pytest.mark.req("Q-2")
def test_a_running_sync_job_reads_that_it_was_cancelled(app: App, on_temporal: bool) -> None:
    started = threading.Event()

    @app.command("slow.loop", retry=QUICK)
    def loop() -> None:
        assert not current().cancelled
        started.set()
        end = time.monotonic() + SOON
        while not current().cancelled:
            assert time.monotonic() < end
            time.sleep(0.01)
        raise Stop("cancelled")

    with app.worker():
        job = loop.submit()
        wait_for(started)
        assert job.cancel()
        assert final_state(job) == "cancelled"
    assert app.ledger.dead_letters() == []
    if on_temporal:  # its history is on Temporal, not in the ledger
        return
    row = app.ledger.get(int(job.id))
    assert row is not None
    assert (row.attempts, row.cancel_at is not None) == (1, True)
    (attempt,) = app.ledger.attempts(row.id)
    assert attempt.outcome == "cancelled"
    assert attempt.error is not None


@pytest.mark.req("Q-2")
@pytest.mark.parametrize("form", ["submit", "asubmit", "tx"])
def test_a_submission_is_rejected_while_its_job_is_being_cancelled(app: App, form: str, on_temporal: bool) -> None:
    if on_temporal and form == "tx":
        pytest.skip("a submission in a transaction does not ask Temporal: see tests/acceptance/temporal/test_outbox.py")

    started, goes_on = threading.Event(), threading.Event()

    @app.command("crm.sync", key="crm:{user}:1:sync:v1", retry=QUICK)
    def sync(user: str) -> None:
        started.set()
        while not goes_on.wait(0.01) or is_first:
            if current().cancelled and goes_on.is_set():
                is_first.clear()
                raise Stop("cancelled")

    is_first = [True]
    with app.worker():
        job = sync.submit("ann")
        wait_for(started)
        assert not sync.submit("ann").created, "the key exists"
        assert job.cancel()
        assert not job.cancel(), "it was asked to stop before"
        refused = f"crm.sync: job {re.escape(job.id)} of the key .* was asked to stop; nothing was submitted"
        with pytest.raises(errors.Cancelled, match=refused) as caught:
            if form == "submit":
                sync.submit("ann")
            elif form == "asubmit":
                asyncio.run(sync.asubmit("ann"))
            else:
                with app.ledger.begin() as connection:
                    sync.using(tx=connection).submit("ann")
        assert caught.value.job_id == job.id
        if not on_temporal:  # on Temporal, it also goes through the ledger
            (known,) = app.submit_many([sync.bind("ann")])
            assert (known.id, known.created) == (job.id, False)
        goes_on.set()
        assert final_state(job) == "cancelled"
        again = sync.submit("ann")
        assert again.created
        assert final_state(again) == "done"


@pytest.mark.req("Q-2")
def test_a_sync_job_that_ignores_the_cancel_is_done(app: App, on_temporal: bool) -> None:
    started = threading.Event()

    @app.command("slow.finish")
    def finish() -> str:
        started.set()
        while not current().cancelled:
            time.sleep(0.01)
        return "finished"

    with app.worker():
        job = finish.submit()
        wait_for(started)
        assert job.cancel()
        assert job.result(SOON) == "finished"
    if on_temporal:
        assert app.ledger.audit()[-1].action == "job.cancel", "the request is on record"
        return
    row = app.ledger.get(int(job.id))
    assert row is not None
    assert row.cancel_at is not None, "the request is on record"


@pytest.mark.req("Q-2")
def test_the_transaction_of_a_cancelled_job_is_rolled_back(app: App) -> None:
    started = threading.Event()
    is_sqlite = app.ledger.connections.on_sqlite
    # SQLite has one writer at a time, so a cancel waits for the transaction of the job.
    seconds = 0.3 if is_sqlite else SOON

    @app.command("slow.pay", in_transaction=True)
    def pay(tx: Connection) -> None:
        started.set()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if current().cancelled:
                raise Stop("cancelled")
            time.sleep(0.01)

    with app.worker():
        job = pay.submit()
        wait_for(started)
        assert job.cancel() is not is_sqlite
        assert final_state(job) == ("done" if is_sqlite else "cancelled")


@pytest.mark.req("Q-2")
def test_a_cancelled_attempt_leaves_a_log_record(app: App) -> None:
    started = threading.Event()
    records: list[str] = []

    @app.command("slow.wait")
    async def wait() -> None:
        started.set()
        await asyncio.sleep(SOON)

    unsubscribe = subscribe(lambda record: records.append(record.kind))
    try:
        with app.worker():
            job = wait.submit()
            wait_for(started)
            job.cancel()
            assert final_state(job) == "cancelled"
    finally:
        unsubscribe()
    assert records.count("cancelled") == 1


@pytest.mark.req("Q-2")
def test_acancel_cancels_from_async_code(app: App) -> None:
    @app.command("mail.send")
    def send() -> None: ...

    job = send.submit()
    assert asyncio.run(job.acancel())
    assert job.state == "cancelled"


@pytest.mark.req("Q-2")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_cancel_that_races_with_the_end_has_one_winner(app: App, kind: str, on_temporal: bool) -> None:
    ran: list[int] = []

    @app.command("race.sync", key="race:{n}:sync:run:v1", retry=QUICK)
    def sync(n: int) -> int:
        time.sleep(random.random() * 0.01)
        if n % 3 == 0:
            raise ConnectionError("no")
        ran.append(n)
        return n

    @app.command("race.async", key="race:{n}:async:run:v1", retry=QUICK)
    async def other(n: int) -> int:
        await asyncio.sleep(random.random() * 0.01)
        if n % 3 == 0:
            raise ConnectionError("no")
        ran.append(n)
        return n

    command = sync if kind == "sync" else other
    count = 30 if on_temporal else 150
    with app.worker(threads=4, name="one"), app.worker(threads=4, name="two"), ThreadPoolExecutor(4) as threads:

        def cancel_soon(job: Job[int]) -> bool:
            time.sleep(random.random() * 0.05)
            return job.cancel()

        jobs = [command.submit(n) for n in range(count)]
        taken = list(threads.map(cancel_soon, jobs))
        states = [final_state(job) for job in jobs]  # type: ignore[arg-type]
    for n, (job, was_taken, state) in enumerate(zip(jobs, taken, states, strict=True)):
        if not on_temporal:
            row = app.ledger.get(int(job.id))
            assert row is not None
            assert (row.cancel_at is not None) == was_taken, (n, state)
        assert state in (("done", "dlq", "cancelled") if was_taken else ("done", "dlq")), (n, state)
        if was_taken and state != "done" and not on_temporal:  # on Temporal it may be a dead letter
            assert state == "cancelled", (n, state)
        if state == "done":
            assert ran.count(n) == 1, n
    if on_temporal:
        return
    tally = app.ledger.counts()[f"race.{kind}"]
    assert tally.balanced
    assert (tally.submitted, tally.ready, tally.leased) == (count, 0, 0)
    assert tally.cancelled == states.count("cancelled")
    assert app.ledger.imbalance() == []


@pytest.mark.req("Q-2")
@pytest.mark.parametrize("ending", ["retry", "giveup", "blocked", "suspended"])
def test_the_log_record_agrees_with_the_ledger_if_the_worker_has_not_read_the_request(
    app: App, ending: str, on_temporal: bool
) -> None:
    if on_temporal and ending == "suspended":
        pytest.skip("sleeps need the ledger: see tests/acceptance/temporal/test_differences.py")

    @app.command("slow.fail", retry=QUICK)
    def fail() -> None:
        handles[0].cancel()
        if ending == "suspended":
            current().sleep(hours=1)
        raise {"retry": ValueError("no"), "giveup": Stop("no"), "blocked": errors.Blocked("no")}[ending]

    records: list[str] = []
    unsubscribe = subscribe(lambda record: records.append(record.kind))
    job = fail.submit()
    handles = [job]
    try:
        with app.worker() as worker:
            assert final_state(job) == "cancelled"
            end = time.monotonic() + SOON
            while not records:
                assert time.monotonic() < end
                time.sleep(0.005)
            assert (worker.status.cancelled, worker.status.dead, worker.status.again) == (1, 0, 0)
    finally:
        unsubscribe()
    assert records == ["cancelled"]
    assert app.ledger.imbalance() == []


def wait_until_suspended(job: Job[str]) -> None:
    end = time.monotonic() + SOON
    while job.state != "waiting":
        assert time.monotonic() < end, job.state
        time.sleep(0.005)


@pytest.mark.req("Q-3", "Q-8")
def test_a_sleeping_job_runs_now(app: App, on_temporal: bool) -> None:
    if on_temporal:
        pytest.skip("sleeps and signals need the ledger: see tests/acceptance/temporal/test_differences.py")

    @app.command("order.remind")
    def remind() -> str:
        current().sleep(days=2)
        return "reminded"

    with app.worker():
        job = remind.submit()
        wait_until_suspended(job)
        result = app.ledger.control.run_now([int(job.id)], actor="ann", because="the customer called")
        assert result.done == {int(job.id): "due now"}
        assert job.result(SOON) == "reminded"


@pytest.mark.req("Q-3", "Q-8")
def test_a_job_that_waits_for_a_signal_is_not_run_now(app: App, on_temporal: bool) -> None:
    if on_temporal:
        pytest.skip("sleeps and signals need the ledger: see tests/acceptance/temporal/test_differences.py")

    @app.command("order.pay")
    def pay() -> str:
        return str(current().wait_for("paid", timeout=3600))

    with app.worker():
        job = pay.submit()
        wait_until_suspended(job)
        result = app.ledger.control.run_now([int(job.id)], actor="ann", because="the customer called")
        assert result.done == {}
        assert result.skipped == {
            int(job.id): "waits for the signal 'paid'; send the signal, or reschedule the job to end the wait"
        }
        assert job.state == "waiting"
        app.signal(job.key, "paid", 1)
        assert job.result(SOON) == "1"
