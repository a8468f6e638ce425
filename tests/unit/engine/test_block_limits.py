"""Blocks under deadlines, breakers and budgets, nested, and in the journal."""

from __future__ import annotations

import asyncio
import traceback
from datetime import timedelta

import pytest

from redrive import Breaker, Budget, Key, RetryPolicy, attempts, current, deadline, errors, journal, outcome, retry
from redrive.testing import FakeClock, inject

STEADY = RetryPolicy(max_attempts=3, backoff_base=1, jitter=0)
ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)


@pytest.mark.req("C-6")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_base_exceptions_are_never_retried(clock: FakeClock, kind: type[BaseException]) -> None:
    entered = 0
    with pytest.raises(kind):
        for attempt in retry(STEADY, on=lambda _: True).attempts():
            with attempt:
                entered += 1
                raise kind
    assert entered == 1


@pytest.mark.req("C-8")
def test_a_block_is_limited_by_its_own_and_the_surrounding_deadline(clock: FakeClock) -> None:
    with deadline(3):
        for attempt in retry(STEADY, attempt_timeout=7).attempts():
            with attempt:
                assert current().remaining == 3
                with deadline(5):
                    assert current().remaining == 3
                with deadline(1):
                    assert current().remaining == 1
    assert current().remaining is None


@pytest.mark.req("C-8")
def test_no_attempt_starts_after_the_deadline(clock: FakeClock) -> None:
    with deadline(1):
        clock.advance(1)
        with pytest.raises(errors.AttemptTimeout, match="had passed"):
            for attempt in attempts():
                with attempt:
                    pytest.fail("began")


@pytest.mark.req("R-5")
def test_a_wait_that_does_not_fit_is_not_slept(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        for attempt in retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=2.5), on=ValueError).attempts():
            with attempt:
                raise ValueError("mine")
    assert clock.slept == [1]
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "timeout"
    assert ended.retry_at == clock.now() + timedelta(seconds=2)


@pytest.mark.req("R-5")
@pytest.mark.parametrize("colour", ["plain", "async"])
def test_a_block_that_overslept_raises_its_last_error(clock: FakeClock, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = FakeClock.sleep
    monkeypatch.setattr(FakeClock, "sleep", lambda self, wait: sleep(self, wait * 5))
    layer = retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=2.5), on=ValueError)

    def plain() -> None:
        for attempt in layer.attempts():
            with attempt:
                raise ValueError("mine")

    async def later() -> None:
        async for attempt in layer.attempts():
            with attempt:
                raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        plain() if colour == "plain" else asyncio.run(later())
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "timeout")
    ours = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if "redrive/engine" in frame.filename]
    assert len(ours) <= 4


@pytest.mark.req("C-12")
def test_an_open_breaker_rejects_a_block(clock: FakeClock) -> None:
    breaker = Breaker(min_calls=1, failure_rate=0.1, open_for=5)
    layer = retry(STEADY, on=ValueError, breaker=breaker, operation="o")
    with pytest.raises(ValueError, match="mine") as caught:
        for attempt in layer.attempts():
            with attempt:
                raise ValueError("mine")
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "breaker_open")
    with pytest.raises(errors.BreakerOpen):
        for attempt in layer.attempts():
            with attempt:
                pytest.fail("began")
    clock.advance(6)
    with pytest.raises(KeyboardInterrupt):
        for attempt in layer.attempts():
            with attempt:
                raise KeyboardInterrupt  # does not count, so the next probe may start immediately
    for attempt in layer.attempts():
        with attempt:
            pass
    assert breaker.state == "closed"


@pytest.mark.req("C-7")
def test_blocks_inside_blocks_do_not_multiply(clock: FakeClock) -> None:
    calls = 0

    def inner() -> None:
        nonlocal calls
        for attempt in retry(ZERO, on=ValueError).attempts():
            with attempt:
                calls += 1
                raise ValueError("inner")

    with pytest.raises(ValueError, match="inner"):
        for attempt in retry(ZERO, on=ValueError).attempts():
            with attempt:
                inner()
    assert calls == 3


@pytest.mark.req("C-9")
def test_a_block_pays_from_the_budget_and_refunds_it(clock: FakeClock) -> None:
    budget = Budget(capacity=20, cost=14, floor=0)
    for attempt in retry(ZERO, on=ValueError, budget=budget).attempts():
        with attempt:
            if attempt.number == 1:
                raise ValueError
            assert budget.left == 6
    assert budget.left == 20


@pytest.mark.req("C-1")
def test_fields_and_the_key_are_in_every_record(clock: FakeClock) -> None:
    ring = journal.ring()
    unsubscribe = journal.subscribe(ring, inline=True, every=True)
    try:
        for attempt in retry(ZERO, on=ValueError, fields={"tenant": "acme"}, key=Key("a", "b", "c", "d")).attempts():
            with attempt:
                if attempt.number == 1:
                    raise ValueError
    finally:
        unsubscribe()
    assert [record.kind for record in ring.records] == ["retry", "recovered"]
    assert {record.fields["tenant"] for record in ring.records} == {"acme"}
    assert {record.fields["idempotency_key"] for record in ring.records} == {"a:b:c:d:v1"}


def test_faults_can_be_injected_into_blocks(clock: FakeClock) -> None:
    layer = retry(STEADY, on=ValueError)
    bodies = []
    with inject(layer, ValueError, ValueError("two"), None) as injected:
        for attempt in layer.attempts():
            with attempt:
                bodies.append(attempt.number)
    assert bodies == [3]
    assert (injected.calls, injected.left) == (3, 0)
    assert clock.slept == [1, 2]

    async def later() -> None:
        async for attempt in layer.attempts():
            with attempt:
                bodies.append(attempt.number)

    with inject(layer, ValueError):
        asyncio.run(later())
    assert bodies == [3, 2]
    with inject(layer, KeyError), pytest.raises(KeyError):
        for attempt in layer.attempts():
            with attempt:
                pytest.fail("began")
