"""The Sentry sink, with the real SDK and a real HTTP server that receives its envelopes."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations import logging as sentry_logging

from redrive import App, Blocked, RetryPolicy, Stop, correlate, journal, retry
from redrive.commands.registry import next_run
from redrive.commands.spec import CRON_HEADER
from redrive.errors import Dead
from redrive.journal.bus import emit
from redrive.journal.sinks import sentry as sink
from redrive.testing import FaultServer, instant
from tests.ledgers import sqlite_ledger

pytestmark = pytest.mark.req("X-7")
QUICK = RetryPolicy(max_attempts=3, backoff_base=0.0, jitter=0.0)
SECRET = "hunter2-s3cret"


@dataclass
class Received:
    """A server in the place of Sentry."""

    server: FaultServer

    def items(self, kind: str) -> list[Any]:
        """The items of all envelopes so far: `event` or `check_in`."""
        assert journal.flush()
        sentry_sdk.flush(10)
        found: list[Any] = []
        for request in self.server.requests:
            body = gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body
            found += [json.loads(item.payload.get_bytes()) for item in Envelope.deserialize(body).items if item.type == kind]
        return found


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(200) as started:
        # The integrations patch modules for the whole process, and are not needed here.
        sentry_sdk.init(dsn=f"http://public@127.0.0.1:{started.port}/1", default_integrations=False)
        yield started
        sentry_sdk.get_client().close(timeout=0.1)
        sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def received(server: FaultServer) -> Iterator[Received]:
    unsubscribe = journal.subscribe(journal.sentry())
    yield Received(server)
    unsubscribe()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(sqlite_ledger(tmp_path)) as opened:
        yield opened


def values(event: Any) -> Any:
    return event["exception"]["values"][-1]


def test_a_dead_letter_is_one_event_with_its_group_and_stack_trace(app: App, received: Received) -> None:
    @app.command("crm.sync", key="crm:{user}:{order}:sync:v1", retry=QUICK)
    def sync(user: str, order: str) -> None:
        token = SECRET  # noqa: F841  # a local variable that must not be sent
        raise ConnectionError(f"no answer for order {order}, password={SECRET}")

    with app.worker(), correlate(request_id="r-1", user_id="ann"):
        jobs = [sync.submit("ann", f"o-{each}") for each in range(2)]
        for job in jobs:
            with pytest.raises(Dead):
                job.result(60)
    events = received.items("event")
    assert len(events) == 2, "three attempts each, and one event"
    event = min(events, key=lambda each: each["contexts"]["redrive"]["job_id"])
    assert {tuple(each["fingerprint"]) for each in events} == {tuple(event["fingerprint"])}
    assert event["fingerprint"][:2] == ["redrive", "crm.sync"]
    assert event["fingerprint"][2].startswith("ConnectionError: no answer for order ")
    assert (event["level"], event["logger"], event["transaction"]) == ("error", "redrive", "crm.sync")
    assert event["tags"] == {
        "redrive.job_type": "crm.sync", "redrive.reason": "attempts", "redrive.attempt": "3",
        "redrive.key": "crm:***:o-0:sync:v1",
    }  # fmt: skip
    context = event["contexts"]["redrive"]
    assert (context["request_id"], context["max_attempts"]) == ("r-1", 3)
    assert context["command"] == f"redrive dead show {context['dlq_id']}"
    assert values(event)["type"] == "ConnectionError"
    assert [frame["function"] for frame in values(event)["stacktrace"]["frames"]][-1] == "sync"
    text = json.dumps(events)
    assert SECRET not in text
    assert "ann" not in json.dumps([event["contexts"], event["tags"]])
    assert '"vars"' not in text


def test_the_user_of_a_key_is_sent_if_asked_for(server: FaultServer) -> None:
    unsubscribe = journal.subscribe(journal.sentry(send_users=True))
    emit("giveup", {"operation": "mail", "job_id": "1", "user_id": "ann", "idempotency_key": "crm:ann:o-1:sync:v1"})
    (event,) = Received(server).items("event")
    unsubscribe()
    assert event["contexts"]["redrive"]["user_id"] == "ann"
    assert event["tags"]["redrive.key"] == event["contexts"]["redrive"]["idempotency_key"] == "crm:ann:o-1:sync:v1"


def test_async_jobs_and_permanent_errors_have_stack_traces(app: App, received: Received) -> None:
    @app.command("mail.send", key="mail:{user}:{order}:send:v1")
    async def send(user: str, order: str) -> None:
        await asyncio.sleep(0)
        raise Stop("no such address")

    with app.worker():
        job = send.submit("ann", "o-1")
        with pytest.raises(Dead):
            job.result(60)
    (event,) = received.items("event")
    assert (values(event)["type"], event["tags"]["redrive.reason"]) == ("Stop", "stopped")
    assert values(event)["stacktrace"]["frames"][-1]["function"] == "send"


def test_a_blocked_job_is_a_warning(app: App, received: Received) -> None:
    @app.command("mail.send", key="mail:{user}:{order}:send:v1")
    def send(user: str, order: str) -> None:
        raise Blocked("the address is not confirmed")

    with app.worker():
        job = send.submit("ann", "o-1")
        with pytest.raises(Dead):
            job.result(60)
    (event,) = received.items("event")
    assert (event["level"], event["fingerprint"][1]) == ("warning", "mail.send")


def test_calls_and_retries_are_not_reported(received: Received) -> None:
    @retry(QUICK, operation="crm.fetch")
    def fetch() -> None:
        raise ConnectionError("away")

    with instant(), pytest.raises(ConnectionError):
        fetch()
    emit("retry", {"operation": "mail", "job_id": "1", "attempt": 1, "error": "away", "error_class": "ConnectionError"})
    assert received.items("event") == []


@pytest.mark.parametrize(
    ("fields", "message", "group"),
    [
        ({"job_id": "7", "error": "3 workers died while they ran this job"}, None, "# workers died while they ran this job"),
        ({"logical_date": "2026-01-31", "reason": "age"}, "orders: age", "age"),
        ({"item": "t-1", "reason": "tile 17 is too large"}, "orders: tile 17 is too large", "tile # is too large"),
    ],
)
def test_failures_without_an_exception_are_reported_with_their_reason(
    received: Received, fields: dict[str, str], message: str | None, group: str
) -> None:
    emit("giveup", {"operation": "orders", **fields})
    (event,) = received.items("event")
    assert event["message"] == (message or f"orders: {fields['error']}")
    assert event["fingerprint"] == ["redrive", "orders", group]


def test_an_outage_sends_few_events_of_one_group(received: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(sink, "monotonic", lambda: now)
    failure = {"operation": "mail", "error_class": "TimeoutError", "error": "away"}
    for each in range(25):
        emit("giveup", {**failure, "job_id": str(each)})
    emit("giveup", {**failure, "job_id": "x", "error": "refused"})
    assert len(received.items("event")) == sink.MAX_EVENTS_PER_WINDOW + 1
    now += sink.WINDOW_SECONDS
    emit("giveup", {**failure, "job_id": "y"})
    assert received.items("event")[-1]["contexts"]["redrive"]["left_out"] == 15


@pytest.mark.parametrize("fails", [0, 1, 3])
def test_a_run_of_a_schedule_is_a_check_in(app: App, received: Received, fails: int) -> None:
    calls = 0

    @app.command("reports.Daily report", cron="0 6 * * 1", timezone="Europe/Prague", retry=QUICK)
    def report() -> None:
        nonlocal calls
        calls += 1
        if calls <= fails:
            raise ConnectionError("away")

    (spec,) = app.commands.scheduled
    run = next_run(spec, app.ledger.now())._replace(due=None)
    job = report.job(app.ledger.submit(run).id)
    with app.worker(), pytest.raises(Dead) if fails == 3 else nullcontext():
        job.result(60)
    check_ins = received.items("check_in")
    assert [each["status"] for each in check_ins] == ["in_progress", "error" if fails == 3 else "ok"]
    assert len({each["check_in_id"] for each in check_ins}) == 1
    assert {each["monitor_slug"] for each in check_ins} == {"reports-daily-report"}
    assert check_ins[0]["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 6 * * 1"}, "timezone": "Europe/Prague",
        "checkin_margin": 5, "max_runtime": 60,
    }  # fmt: skip
    assert (check_ins[1].get("duration") is not None) is (fails < 3)
    assert len(received.items("event")) == (fails == 3)


def test_check_ins_can_be_switched_off(app: App, server: FaultServer) -> None:
    @app.command("reports.daily", cron="0 6 * * *")
    def report() -> None: ...

    unsubscribe = journal.subscribe(journal.sentry(check_ins=False))
    run = next_run(app.commands.scheduled[0], app.ledger.now())._replace(due=None)
    job = report.job(app.ledger.submit(run).id)
    with app.worker():
        job.result(60)
    assert Received(server).items("check_in") == []
    unsubscribe()


def test_a_job_with_a_key_like_that_of_a_schedule_is_no_check_in(received: Received) -> None:
    for key in ("cron::20261118T060000Z:other:v1", "cron:ann:o-1:mail:v1", "mail::20261118T060000Z:mail:v1"):
        emit("giveup", {"operation": "mail", "job_id": "1", "reason": "attempts", "idempotency_key": key})
    emit("giveup", {"operation": "mail", "job_id": "1", "idempotency_key": "cron::20261118T060000Z:mail:v1"})
    assert [each["status"] for each in received.items("check_in")] == ["error"]
    assert sink.CRON_HEADER == CRON_HEADER


def test_a_sentry_that_is_away_does_not_fail_jobs(app: App, received: Received) -> None:
    @app.command("mail.send", key="mail:{user}:{order}:send:v1")
    def send(user: str, order: str) -> str:
        if order == "bad":
            raise Stop("no such address")
        return "sent"

    received.server.script("hang")
    with app.worker():
        bad, good = send.submit("ann", "bad"), send.submit("ann", "o-1")
        assert good.result(60) == "sent"
        with pytest.raises(Dead):
            bad.result(60)


def test_an_error_of_the_sdk_does_not_fail_jobs(app: App, received: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug of the SDK")

    @app.command("mail.send", key="mail:{user}:{order}:send:v1")
    def send(user: str, order: str) -> None:
        raise Stop("no such address")

    monkeypatch.setattr(sink, "event_from_exception", broken)
    lost = journal.dropped()
    with app.worker():
        job = send.submit("ann", "o-1")
        with pytest.raises(Dead):
            job.result(60)
    (event,) = received.items("event")
    assert (values(event)["type"], values(event)["value"]) == ("Stop", "no such address")
    assert journal.dropped() == lost + 1


def test_the_log_messages_of_the_same_records_are_ignored(server: FaultServer) -> None:
    unsubscribe = journal.subscribe(journal.sentry())
    assert "redrive" in sentry_logging._IGNORED_LOGGERS
    unsubscribe()
    # Old versions cannot forget a logger.
    assert ("redrive" in sentry_logging._IGNORED_LOGGERS) != hasattr(sentry_logging, "unignore_logger")


def test_a_sentry_that_is_not_initialised_is_an_error_at_the_start() -> None:
    with pytest.raises(ValueError, match=r"^journal.sentry\(\): Sentry is not initialised; call sentry_sdk.init"):
        journal.subscribe(journal.sentry())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"check_ins": "yes"}, TypeError("check_ins must be True or False, not 'yes'")),
        ({"send_users": 1}, TypeError("send_users must be True or False, not 1")),
        ({"checkin_margin": 0}, ValueError("checkin_margin must be at least 1: 0")),
        ({"max_runtime": 1.5}, TypeError("max_runtime must be a whole number, not float: 1.5")),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        journal.sentry(**options)
    assert str(raised.value) == str(error)


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(journal.__dict__, "sentry", raising=False)
    monkeypatch.delitem(sys.modules, "redrive.journal.sinks.sentry")
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    with pytest.raises(ImportError) as raised:
        journal.sentry  # noqa: B018  # loaded when it is used
    assert str(raised.value) == 'journal.sentry() needs sentry-sdk: pip install "redrive[sentry]"'
