"""The log records and log lines of a run."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from redrive import Breaker, RetryPolicy, errors, journal, retry
from redrive.core.context import CLOCK_USERS
from redrive.engine.run import MAX_LISTED_ATTEMPTS
from redrive.journal import Record, Ring
from redrive.testing import FakeClock
from tests.unit.engine.down import STEADY, Unspeakable, down


@pytest.fixture
def ring() -> Iterator[Ring]:
    ring = journal.ring()
    unsubscribe = journal.subscribe(ring, inline=True, every=True)
    yield ring
    unsubscribe()


@pytest.mark.req("C-1")
def test_every_attempt_has_a_record(clock: FakeClock, ring: Ring) -> None:
    fields = {"tenant": "acme", "attempt": "mine"}
    layer = retry(STEADY, on=OSError, fields=fields, operation="crm", key=lambda: "a:b:c:d:v1")
    fields["tenant"] = "changed"
    with pytest.raises(OSError, match="down"):
        layer.call(down())
    assert [(record.kind, record.fields["attempt"]) for record in ring.records] == [("retry", 1), ("retry", 2), ("giveup", 3)]
    for record in ring.records:
        assert record.fields["tenant"] == "acme"
        assert record.fields["operation"] == "crm"
        assert record.fields["max_attempts"] == 3
        assert record.fields["idempotency_key"] == "a:b:c:d:v1"
        assert record.fields["error_class"] == "OSError"
        assert record.fields["error"] == "down"
        assert record.fields["retryable"] is True
    assert [record.fields.get("wait") for record in ring.records] == [1, 2, None]
    assert ring.records[2].fields["reason"] == "attempts"
    assert [record.at for record in ring.records] == [clock.now() - timedelta(seconds=left) for left in (3, 2, 0)]


@pytest.mark.req("C-1")
def test_successes_are_recorded_only_for_sinks_with_every(clock: FakeClock, ring: Ring) -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        clock.advance(0.25)
        if calls == 2:
            raise OSError

    layer = retry(STEADY, on=OSError, fields={"tenant": "acme"})
    layer.call(work)
    layer.call(work)
    assert [record.kind for record in ring.records] == ["success", "retry", "recovered"]
    assert {record.fields["latency_ms"] for record in ring.records} == {250}
    assert {record.fields["tenant"] for record in ring.records} == {"acme"}


def test_each_layer_records_a_nested_giveup(clock: FakeClock, ring: Ring) -> None:
    inner, outer = (retry(STEADY, on=OSError, operation=name) for name in ("inner", "outer"))
    with pytest.raises(OSError, match="down"):
        outer.call(inner(down()))
    told = [(record.fields["operation"], record.fields.get("reason")) for record in ring.records if record.kind == "giveup"]
    assert told == [("inner", "attempts"), ("outer", "nested")]


def test_refused_starts_are_recorded(clock: FakeClock, ring: Ring) -> None:
    from redrive import deadline

    with deadline(0), pytest.raises(errors.AttemptTimeout):
        retry(STEADY, operation="crm", fields={"tenant": "acme"}).call(down())
    (record,) = ring.records
    assert (record.kind, record.fields["reason"], record.fields["attempt"]) == ("giveup", "timeout", 0)
    assert (record.fields["operation"], record.fields["tenant"]) == ("crm", "acme")


def test_breakers_record_when_they_open_and_close(clock: FakeClock, ring: Ring) -> None:
    layer = retry(RetryPolicy.disabled(), on=OSError, breaker=Breaker(min_calls=1, failure_rate=0.1, open_for=1), operation="crm")
    with pytest.raises(OSError, match="down"):
        layer.call(down())
    clock.advance(2)
    layer.call(lambda: None)
    told = [record for record in ring.records if record.kind.startswith("breaker")]
    assert [record.kind for record in told] == ["breaker_opened", "breaker_closed"]
    assert {record.fields["operation"] for record in told} == {"crm"}


def test_an_error_without_a_message_is_recorded(clock: FakeClock, ring: Ring) -> None:
    with pytest.raises(Unspeakable):
        retry(STEADY, on=Unspeakable).call(down(Unspeakable))
    assert {record.fields["error"] for record in ring.records} == {"(its message cannot be read)"}


def test_sinks_that_raise_do_not_break_the_call(clock: FakeClock) -> None:
    heard = 0

    def broken(_: Record) -> None:
        nonlocal heard
        heard += 1
        raise ZeroDivisionError

    before = journal.dropped()
    unsubscribe = journal.subscribe(broken, inline=True, every=True)
    try:
        calls = 0

        def work() -> int:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise OSError
            return calls

        assert retry(STEADY, on=OSError).call(work) == 2
        assert retry(STEADY, on=OSError).call(work) == 3
    finally:
        unsubscribe()
    assert heard == 3
    assert journal.dropped() == before + 3


def test_retries_and_giveups_are_logged(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "redrive"), pytest.raises(OSError, match="down"):
        retry(STEADY, on=OSError, operation="crm").call(down())
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "crm: attempt 1 of 3 failed (OSError: down), again in 1 s"),
        ("INFO", "crm: attempt 2 of 3 failed (OSError: down), again in 2 s"),
        ("WARNING", "crm: attempt 3 of 3 failed (OSError: down), giving up: attempts"),
    ]


def test_a_refused_start_is_logged(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    from redrive import deadline

    with deadline(0), pytest.raises(errors.AttemptTimeout):
        retry(STEADY, operation="crm").call(down())
    (record,) = caplog.records
    assert "None" not in record.message


@pytest.mark.req("C-4")
def test_a_long_history_is_shortened(clock: FakeClock) -> None:
    with pytest.raises(OSError, match="down") as caught:
        retry(RetryPolicy(max_attempts=MAX_LISTED_ATTEMPTS + 5, backoff_base=1, backoff_max=1, jitter=0), on=OSError).call(down())
    (note,) = caught.value.__notes__
    assert note.count("1, ") == MAX_LISTED_ATTEMPTS
    assert "1, … s): attempts spent" in note


@pytest.mark.req("J-1", "H-5")
@pytest.mark.parametrize("limit", [None, 10.0])
@pytest.mark.parametrize("form", ["sync", "async", "block", "async block"])
def test_every_record_of_an_attempt_has_its_latency(limit: float | None, form: str) -> None:
    """Also without a time limit, where a call reads no clock without a sink."""
    layer = retry(RetryPolicy(3, 0, 0, 0), attempt_timeout=limit, on=OSError)
    failures = iter([OSError("down"), OSError("down")])

    def work() -> None:
        for error in failures:
            raise error

    async def work_async() -> None:
        work()

    async def run() -> None:
        if form == "async":
            await layer.acall(work_async)
            return
        async for attempt in layer.attempts():
            async with attempt:
                work()

    heard: list[Record] = []
    unsubscribe = journal.subscribe(heard.append, inline=True)
    try:
        if form.startswith("async"):
            asyncio.run(run())
        elif form == "sync":
            layer.call(work)
        else:
            for attempt in layer.attempts():
                with attempt:
                    work()
    finally:
        unsubscribe()
    assert [record.kind for record in heard] == ["retry", "retry", "recovered"]
    assert all(record.fields["latency_ms"] >= 0 for record in heard)


@pytest.mark.req("J-1")
@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_the_latency_of_a_later_attempt_excludes_earlier_ones(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    """Without a sink the first attempt reads no clock. A slow log handler does not count for the next attempt."""
    now = 100.0
    test_thread = threading.get_ident()
    latencies: list[float | None] = []

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            nonlocal now
            if record.thread != test_thread:  # another test's thread may still end
                return
            now += 5.0
            latencies.append(vars(record)["redrive"].get("latency_ms"))

    def work() -> None:
        nonlocal now
        now += 0.25
        raise OSError("down")

    monkeypatch.setattr("redrive.engine.fastpath.monotonic", lambda: now)
    monkeypatch.setattr("redrive.core.clock.SystemClock.monotonic", staticmethod(lambda: now))
    logger, handler = logging.getLogger("redrive"), Slow()
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(level)
    try:
        with pytest.raises(OSError, match="down"):
            retry(RetryPolicy(3, 0, 0, 0), attempt_timeout=None, on=OSError).call(work)
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
    if level == logging.INFO:
        # Another test of this process may have left a sink or a span, which reads the clock.
        assert latencies.pop(0) == (250.0 if CLOCK_USERS else None)
    assert latencies == ([250.0, 250.0] if level == logging.INFO else [250.0])
