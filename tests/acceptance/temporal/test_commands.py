"""Commands on a real Temporal server: submit, run, retry, result, dead letter and replay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio import activity

from redrive import App, RetryPolicy, Stop, current, errors
from redrive.journal import subscribe
from redrive.ops import DeadLetterFilter, Operator
from redrive.temporal.completion import ActivityCompleter, is_cancel_requested

QUICK = RetryPolicy(max_attempts=3, backoff_base=0.02, backoff_max=0.05, jitter=0)
SOON = 60.0


@pytest.mark.req("E-9")
def test_a_command_runs_once_for_a_key_and_returns_its_result(app: App) -> None:
    ran: list[str] = []

    @app.command("receipts.send", key="shop:{user}:{order_id}:receipt:v1", retry=QUICK)
    def send(order_id: str, user: str) -> str:
        ran.append(current().job_id or "")
        if current().number < 2:
            raise ConnectionError("down")
        return f"mail-{order_id}"

    job = send.submit("o-1", user="ann")
    assert (job.created, job.state, job.attempts) == (True, "queued", 0)
    same = send.submit("o-1", user="ann")
    assert (same.created, same.id) == (False, job.id)
    with app.worker():
        assert job.result(SOON) == "mail-o-1"
    assert (job.state, job.attempts) == ("done", 2)
    assert ran == [job.id, job.id]
    assert app.ledger.counts() == {}, "the ledger has seen nothing of it"


@pytest.mark.req("E-9")
def test_a_failed_activity_is_a_dead_letter_that_an_operator_replays(app: App) -> None:
    broken = [True]

    @app.command("crm.sync", key="crm:{user}:1:sync:v1")
    def sync(user: str) -> str:
        if broken:
            raise Stop("no such user")
        return "synced"

    job = sync.submit("ann")
    with app.worker():
        with pytest.raises(errors.Dead, match="is a dead letter: stopped: Stop: no such user") as dead:
            job.result(SOON)
        (letter,) = app.ledger.dead_letters()
        assert (letter.kind, letter.key, letter.reason, letter.attempts) == ("crm.sync", job.key, "stopped", 1)
        assert dead.value.dead_id == str(letter.id)
        broken.clear()
        ann = Operator(app, actor="ann")
        ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(dead.value.dead_id,))), because="the user exists")
        assert job.result(SOON) == "synced"
        assert job.state == "done"
    (letter,) = app.ledger.dead_letters(status=None)
    assert letter.status == "replayed"


@pytest.mark.req("E-9", "Q-2")
def test_a_request_that_arrives_while_an_attempt_is_ended_is_recorded(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.command("crm.sync", retry=QUICK)
    def sync() -> None:
        jobs[0].cancel()
        raise ValueError("no answer")

    async def is_asked_to_stop(*_: Any) -> bool:
        while not is_cancel_requested():
            activity.heartbeat()  # the request comes with its response
            await asyncio.sleep(0.01)
        return True

    monkeypatch.setattr(ActivityCompleter, "_is_asked_to_stop", is_asked_to_stop)
    records: list[str] = []
    unsubscribe = subscribe(lambda record: records.append(record.kind), inline=True)
    jobs = [sync.submit()]
    with app.worker() as worker, pytest.raises(errors.Cancelled):
        jobs[0].result(SOON)
    unsubscribe()
    assert records == ["cancelled"]
    assert worker.status.cancelled == 1
