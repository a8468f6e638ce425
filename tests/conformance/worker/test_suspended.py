"""Jobs that sleep or wait for signals, through the whole worker, on each database."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from redrive import App, current
from redrive.errors import SignalTimeout
from redrive.ledger import Lease, Ledger, NewJob
from redrive.worker.worker import Worker

from .test_steps import stored_steps
from .world import kind, record_log, submit, until, wait_for_jobs

pytestmark = pytest.mark.req("Q-8")
EXECUTIONS = ["thread", "async"]
KEY = "shop:ann:0:orders:v1"


def waiting(ledger: Ledger, job_id: int, name: str | None) -> bool:
    job = ledger.get(job_id)
    return job is not None and job.state == "ready" and job.waits_for == name


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_sleeping_job_holds_no_worker_and_repeats_no_step(ledger: Ledger, execution: str) -> None:
    calls: Counter[str] = Counter()

    def charge() -> None:
        calls["charge"] += 1

    async def acharge() -> None:
        charge()

    def work(lease: Lease) -> None:
        calls["attempts"] += 1
        current().step("charge", charge)
        current().sleep(seconds=0.3)
        current().sleep(seconds=0.2, name="second")

    async def awork(lease: Lease) -> None:
        calls["attempts"] += 1
        await current().step("charge", acharge)
        await current().asleep(seconds=0.3)
        await current().asleep(seconds=0.2, name="second")

    (job_id,) = submit(ledger, "orders", max_attempts=1)
    run = awork if execution == "async" else work
    with record_log() as records, Worker(ledger, [kind("orders", run, execution)], threads=1) as worker:
        until(lambda: waiting(ledger, job_id, ""))
        job = ledger.get(job_id)
        assert job is not None
        assert (job.shown, job.attempts, job.reason) == ("waiting", 0, None)
        until(lambda: worker.status.running == 0)
        (job,) = wait_for_jobs(ledger, job_id)
    assert (job.state, job.attempts) == ("done", 1)
    assert calls == {"charge": 1, "attempts": 3}
    acts = [(step.act, step.name) for step in stored_steps(ledger, job_id)]
    assert acts == [("step", "charge"), ("sleep", "1"), ("sleep", "second")]
    assert [record.kind for record in records if record.kind == "suspended"] == ["suspended"] * 2
    assert ledger.attempts(job_id) == [], "a sleep is not an attempt"


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("early", [True, False])
def test_a_signal_continues_the_job_with_its_payload(ledger: Ledger, execution: str, early: bool) -> None:
    received: list[Any] = []

    def work(lease: Lease) -> None:
        received.append(current().wait_for("approved", timeout=600))

    async def awork(lease: Lease) -> None:
        received.append(await current().await_for("approved", timeout=timedelta(minutes=10)))

    app = App(ledger)
    (job_id,) = submit(ledger, "orders")
    run = awork if execution == "async" else work
    if early:
        assert app.signal(KEY, "approved", {"by": "ann"}).stored
    with Worker(ledger, [kind("orders", run, execution)]):
        if not early:
            until(lambda: waiting(ledger, job_id, "approved"))
            sent = app.signal(KEY, "approved", {"by": "ann"})
            assert (sent.job_id, sent.stored, sent.is_dead) == (str(job_id), True, False)
        (job,) = wait_for_jobs(ledger, job_id)
    assert (job.state, received) == ("done", [{"by": "ann"}])
    with pytest.raises(LookupError, match=f"signal 'approved': job {job_id} .orders. is done and waits for nothing; nothing was"):
        app.signal(KEY, "approved")


def test_of_two_signals_the_first_one_counts(ledger: Ledger) -> None:
    app = App(ledger)
    submit(ledger, "orders")
    assert app.signal(KEY, "approved", 1).stored
    assert not app.signal(KEY, "approved", 2).stored
    received: list[Any] = []
    with Worker(ledger, [kind("orders", lambda lease: received.append(current().wait_for("approved", timeout=60)))]):
        until(lambda: bool(received))
    assert received == [1]


def test_a_timeout_stays_one_after_a_late_signal(ledger: Ledger) -> None:
    app = App(ledger)
    outcomes: list[str] = []

    def work(lease: Lease) -> None:
        try:
            current().wait_for("approved", timeout=0.05)
            outcomes.append("approved")
        except SignalTimeout as error:
            outcomes.append(str(error))
        if len(outcomes) < 2:
            app.signal(KEY, "approved")
            raise ConnectionError("no answer")

    with Worker(ledger, [kind("orders", work)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert (job.state, outcomes) == ("done", ["the signal 'approved' did not arrive in time"] * 2)
    (wait,) = stored_steps(ledger, job.id)
    assert (wait.act, wait.error) == ("wait", "timeout")


def test_an_uncaught_timeout_makes_a_dead_letter_immediately(ledger: Ledger) -> None:
    with Worker(ledger, [kind("orders", lambda lease: current().wait_for("approved", timeout=0.01))]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert (job.state, job.reason, job.attempts) == ("dead", "stopped", 1)


def test_a_signal_for_a_dead_letter_is_for_its_replay(ledger: Ledger) -> None:
    app = App(ledger)
    received: list[Any] = []
    must_fail = [True]

    def work(lease: Lease) -> None:
        if must_fail[0]:
            raise ValueError("no such article")
        received.append(current().wait_for("approved", timeout=60))

    with Worker(ledger, [kind("orders", work)]):
        wait_for_jobs(ledger, *submit(ledger, "orders"))
        sent = app.signal(KEY, "approved", "late")
        assert (sent.stored, sent.is_dead) == (True, True)
        must_fail[0] = False
        (letter,) = ledger.dead_letters()
        replay = ledger.replay([letter.id], actor="ann", because="test")
        (job,) = wait_for_jobs(ledger, replay.done[letter.id])
    assert (job.state, received) == ("done", ["late"])


def test_bad_signals_change_nothing(ledger: Ledger) -> None:
    app = App(ledger)
    ledger.submit_many([NewJob("orders", KEY), NewJob("mail", KEY)])
    with pytest.raises(LookupError, match="no job has the key 'shop:bob:0:orders:v1'; nothing was changed"):
        app.signal("shop:bob:0:orders:v1", "approved")
    with pytest.raises(LookupError, match=r"2 job types have the key .*mail, orders.*; pass kind="):
        app.signal(KEY, "approved")
    with pytest.raises(TypeError, match="signal 'approved': the payload cannot be stored: object cannot be stored as JSON"):
        app.signal(KEY, "approved", object(), kind="mail")
    with pytest.raises(ValueError, match="the name of a signal must be printable"):
        app.signal(KEY, "", kind="mail")
    assert app.signal(KEY, "approved", kind="mail").stored


def test_a_signal_in_the_callers_transaction_is_sent_with_it(ledger: Ledger) -> None:
    app = App(ledger)
    (job_id,) = submit(ledger, "orders")
    received: list[Any] = []
    with Worker(ledger, [kind("orders", lambda lease: received.append(current().wait_for("approved", timeout=600)))]):
        until(lambda: waiting(ledger, job_id, "approved"))
        with pytest.raises(ZeroDivisionError), ledger.begin() as tx:
            app.signal(KEY, "approved", 1, tx=tx)
            raise ZeroDivisionError
        job = ledger.get(job_id)
        assert job is not None
        assert job.waits_for == "approved"
        with ledger.begin() as tx:
            app.signal(KEY, "approved", 2, tx=tx)
        until(lambda: bool(received))
    assert received == [2]


def test_an_attempt_that_swallows_the_suspension_is_still_suspended(ledger: Ledger) -> None:
    calls: Counter[str] = Counter()

    def work(lease: Lease) -> None:
        calls["attempts"] += 1
        try:
            current().sleep(seconds=0.05)
        except BaseException:
            current().step("remind", lambda: calls.update(["remind"]))

    with Worker(ledger, [kind("orders", work)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert (job.state, calls) == ("done", {"attempts": 2})


def test_several_waits_immediately_continue_with_the_first(ledger: Ledger) -> None:
    app = App(ledger)
    received: list[Any] = []

    async def work(lease: Lease) -> None:
        received.append(await asyncio.gather(*(current().await_for(name, timeout=600) for name in ("a", "b"))))

    (job_id,) = submit(ledger, "orders")
    with Worker(ledger, [kind("orders", work, "async")]):
        for name in ("b", "a"):
            until(lambda: (job := ledger.get(job_id)) is not None and job.waits_for in ("a", "b"))
            app.signal(KEY, name, name)
        (job,) = wait_for_jobs(ledger, job_id)
    assert (job.state, received) == ("done", [["a", "b"]])


def test_misuse_is_a_clear_error(ledger: Ledger) -> None:
    errors: dict[str, str] = {}

    def note(name: str, call: Any) -> None:
        try:
            call()
        except (TypeError, ValueError, RuntimeError) as error:
            errors[name] = str(error)

    async def in_loop(lease: Lease) -> None:
        note("loop", lambda: current().sleep(days=1))
        note("loop wait", lambda: current().wait_for("approved", timeout=1))

    def in_transaction(connection: Connection, lease: Lease) -> None:
        note("transaction", lambda: current().sleep(days=1))

    def in_thread(lease: Lease) -> None:
        note("zero", lambda: current().sleep())
        note("timeout", lambda: current().wait_for("approved", timeout=0))
        note("century", lambda: current().sleep(days=99_999))

    runs: dict[str, tuple[Any, str]] = {
        "loop": (in_loop, "async"),
        "transaction": (in_transaction, "transaction"),
        "thread": (in_thread, "thread"),
    }
    with Worker(ledger, [kind(name, run, execution) for name, (run, execution) in runs.items()]):
        wait_for_jobs(ledger, *(submit(ledger, name)[0] for name in runs))
    assert errors == {
        "loop": "sleep: this job is async; use `await current().asleep(...)`",
        "loop wait": "wait_for: this job is async; use `await current().await_for(...)`",
        "transaction": "sleep: a job with in_transaction=True cannot release its worker, because its transaction would be "
        "rolled back; use a command without in_transaction=True",
        "zero": "sleep: the time must be above 0, not 0 s; for example: hours=1",
        "timeout": "signal 'approved': timeout must be above 0: 0",
        "century": "sleep: the time must be less than a century: 8.63991e+09 s",
    }


def test_a_signal_that_races_with_the_wait_never_gets_lost(ledger: Ledger) -> None:
    """The signal is sent at any time of the attempt that begins to wait: 100 jobs, and none is stuck."""
    app, count = App(ledger), 100
    received: list[Any] = []
    reached = [threading.Event() for _ in range(count)]

    def work(lease: Lease) -> None:
        reached[int(lease.key.split(":")[2])].set()
        received.append(current().wait_for("approved", timeout=3600))

    ids = submit(ledger, "orders", count)

    def send(numbers: range) -> None:
        for number in numbers:
            reached[number].wait(60)
            app.signal(f"shop:ann:{number}:orders:v1", "approved", number, kind="orders")

    senders = [threading.Thread(target=send, args=(range(start, count, 4),)) for start in range(4)]
    with Worker(ledger, [kind("orders", work)]):
        for sender in senders:
            sender.start()
        wait_for_jobs(ledger, *ids)
        for sender in senders:
            sender.join()
    assert sorted(received) == list(range(count))
