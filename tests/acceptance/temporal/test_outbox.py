"""Jobs in the ledger that run on Temporal: submissions in a transaction, bulk submissions and replays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from temporalio.client import Client

from redrive import App, RetryPolicy, Stop, Temporal, current, errors
from redrive.ops import DeadLetterFilter, Operator
from redrive.temporal.reconciliation import ReconciliationTask

QUICK = RetryPolicy(max_attempts=2, backoff_base=0.02, backoff_max=0.05, jitter=0)
SOON = 60.0


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.req("E-9")
def test_a_submission_in_a_transaction_takes_the_activity_that_has_the_key(app: App) -> None:
    ran: list[str] = []

    @app.command("parcels.pack", key="shop:{user}:1:pack:v1", retry=QUICK)
    def pack(user: str) -> str:
        ran.append(user)
        return f"packed for {user}"

    direct = pack.submit("ann")
    with app.ledger.begin() as tx:
        handed = pack.using(tx=tx).submit("ann")
    assert (direct.created, handed.created) == (True, True), "the ledger does not know of the first one"
    with app.worker():
        assert direct.result(SOON) == handed.result(SOON) == "packed for ann"
        assert (handed.state, handed.attempts) == ("done", 1)
        assert pack.submit("ann").result(SOON) == "packed for ann"
    assert ran == ["ann"]


@pytest.mark.req("E-9")
def test_the_outbox_is_handed_over_in_the_order_of_submission(app: App) -> None:
    ran: list[int] = []

    @app.command("parcels.pack")
    async def pack(number: int) -> int:
        ran.append(number)
        return number

    jobs = app.submit_many([pack.bind(number) for number in range(40)])
    with app.worker():
        assert [job.result(SOON) for job in jobs] == list(range(40))
    assert sorted(ran) == list(range(40))


@pytest.mark.req("E-9")
def test_a_handed_over_job_that_fails_is_one_dead_letter_with_its_attempts(app: App) -> None:
    @app.command("parcels.pack", key="shop:{user}:1:pack:v1", retry=QUICK)
    def pack(user: str) -> None:
        raise ConnectionError(f"down {current().number}")

    (job,) = app.submit_many([pack.bind("ann")])
    with app.worker():
        with pytest.raises(errors.Dead, match="failed after 2 attempts: ConnectionError: down 2") as dead:
            job.result(SOON)
        ann = Operator(app, actor="ann")
        ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(dead.value.dead_id,))), because="try it")
        until(lambda: [(each.status, each.replay_count) for each in app.ledger.dead_letters()] == [("pending", 1)])
        (letter,) = app.ledger.dead_letters()
    assert (letter.status, letter.attempts, letter.replay_count) == ("pending", 2, 1)
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=(dead.value.dead_id,))), because="of no use")
    assert job.state == "discarded"


@pytest.mark.req("E-9")
def test_cancelling_a_job_in_the_ledger_stops_its_activity(app: App) -> None:
    started, stopped = threading.Event(), threading.Event()

    @app.command("parcels.carry", key="shop:{user}:1:carry:v1", retry=QUICK)
    def carry(user: str) -> None:
        started.set()
        end = time.monotonic() + SOON
        while not current().cancelled:
            assert time.monotonic() < end
            time.sleep(0.01)
        stopped.set()
        raise Stop("cancelled")

    (job,) = app.submit_many([carry.bind("ann")])
    with app.worker():
        assert started.wait(SOON)
        until(lambda: job.state == "running")
        app.ledger.control.cancel([int(job.id)], actor="ann", because="wrong address")
        assert stopped.wait(SOON)
        until(lambda: job.state == "cancelled")
        assert app.ledger.dead_letters() == []


@pytest.mark.req("E-9")
def test_an_activity_that_was_cancelled_in_the_server_cancels_its_job(app: App, engine: Temporal) -> None:
    @app.command("parcels.pack", key="shop:{user}:1:pack:v1")
    def pack(user: str) -> None: ...

    later = pack.using(delay=3600).submit("ann")
    with app.ledger.begin() as tx:
        job = pack.using(tx=tx).submit("ann")
    assert later.cancel(because="in the UI of the server")
    assert later.state == "cancelled"
    with app.worker():
        assert job.result(SOON) is None, "the outbox starts another one"


@pytest.mark.req("E-9")
def test_a_canary_of_replays_continues_when_its_activities_are_done(app: App) -> None:
    broken = [True]

    @app.command("crm.sync", key="crm:{user}:1:sync:v1")
    def sync(user: str) -> None:
        if broken:
            raise Stop("the CRM is closed")

    for user in ("ann", "bob", "eve"):
        sync.submit(user)
    ann = Operator(app, actor="ann")
    with app.worker():
        until(lambda: len(app.ledger.dead_letters()) == 3)
        broken.clear()
        ann.begin(ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync")), because="it is open", canary=1)
        until(lambda: [each.status for each in app.ledger.dead_letters(status=None)] == ["replayed"] * 3)
        until(lambda: ann.sweeps.find()[0].state == "done")
    assert "dead.replay" in [entry.action for entry in app.ledger.audit()]


@pytest.mark.req("E-9")
def test_a_deadline_that_passed_in_the_outbox_is_a_dead_letter(app: App) -> None:
    @app.command("parcels.pack", key="shop:{user}:1:pack:v1")
    def pack(user: str) -> None:
        raise AssertionError("too late")

    with app.ledger.begin() as tx:
        job = pack.using(tx=tx, deadline=datetime.now(timezone.utc) + timedelta(milliseconds=1)).submit("ann")
    with app.worker(), pytest.raises(errors.Dead, match="deadline"):
        job.result(SOON)


@pytest.mark.req("E-9")
def test_a_replay_that_was_pruned_is_no_new_dead_letter(app: App) -> None:
    broken = [True]

    @app.command("crm.sync", key="crm:{user}:1:sync:v1", retry=QUICK)
    def sync(user: str) -> None:
        if broken:
            raise Stop("the CRM is closed")

    sync.submit("ann")
    ann = Operator(app, actor="ann")
    with app.worker():
        until(app.ledger.dead_letters)
        broken.clear()
        ann.apply(ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync")), because="it is open")
        until(lambda: [each.status for each in app.ledger.dead_letters(status=None)] == ["replayed"])
    until(lambda: app.ledger.prune(0))
    reconcile(app, "crm.sync")
    assert len(app.ledger.dead_letters(status=None)) == 1, "the server still has the run that failed"


@pytest.mark.req("E-9")
def test_an_erased_dead_letter_does_not_come_back_from_the_server(app: App) -> None:
    @app.command("crm.sync", key="crm:{user}:1:sync:v1", retry=QUICK)
    def sync(user: str) -> None:
        raise Stop("the CRM is closed")

    sync.submit("ann")
    with app.worker():
        until(lambda: reconcile(app, "crm.sync").get("failed"))
    ops = Operator(app, actor="dpo")
    ops.user_data.erase(ops.user_data.plan_erasure("ann"), because="request 1")
    reconcile(app, "crm.sync")
    (letter,) = app.ledger.dead_letters(status=None)
    assert (letter.status, letter.payload) == ("discarded", b"")


@pytest.mark.req("E-9")
def test_an_activity_of_another_program_does_not_hold_up_the_reconciliation(app: App, engine: Temporal) -> None:
    @app.command("crm.sync", key="crm:{user}:1:sync:v1")
    def sync(user: str) -> None: ...

    temporal = app.registrations.temporal
    assert temporal is not None
    soon = timedelta(milliseconds=1)

    async def start(client: Client) -> None:
        inputs: list[list[Any]] = [["a", "b"], ["a", {"key": "not a key"}], [1], [{}, {"key": "\n"}]]
        for number, arguments in enumerate(inputs):
            await client.start_activity(
                "crm.sync", args=arguments, id=f"foreign-{engine.task_queue}-{number}",
                task_queue=engine.task_queue, schedule_to_close_timeout=soon,
            )  # fmt: skip

    temporal.connection.call(start, "nothing was submitted")
    late = sync.using(deadline=datetime.now(timezone.utc) + soon).submit("ann")
    until(lambda: late.state == "dlq")
    until(lambda: reconcile(app, "crm.sync").get("failed") == 5)
    assert late.key in [each.key for each in app.ledger.dead_letters()]


def reconcile(app: App, *kinds: str) -> dict[str, int]:
    """Make the first pass of a worker that starts, and return how many activities the server has by state."""
    temporal = app.registrations.temporal
    assert temporal is not None
    reports: list[Mapping[str, Any]] = []
    ReconciliationTask(temporal, app.ledger, kinds, reports.append).do(datetime.now(timezone.utc))
    counts: dict[str, int] = reports[-1]["counts"]
    return counts
