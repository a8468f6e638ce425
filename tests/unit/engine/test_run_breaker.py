"""A run behind a breaker: skipped attempts, raised errors, and the results of probes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redrive import Breaker, Budget, RetryPolicy, errors, outcome, retry
from redrive.testing import FakeClock
from tests.unit.engine.down import STEADY, down


@pytest.mark.req("C-12")
@pytest.mark.parametrize("colour", ["plain", "async"])
def test_an_open_breaker_is_not_retried(clock: FakeClock, colour: str) -> None:
    breaker = Breaker(min_calls=3, failure_rate=0.5, open_for=10)
    layer = retry(STEADY, on=lambda _: True, breaker=breaker, operation="crm")
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise OSError("down")

    async def later() -> None:
        work()

    def go() -> None:
        layer.call(work) if colour == "plain" else asyncio.run(layer.acall(later))

    with pytest.raises(OSError, match="down") as caught:
        go()
    assert calls == 3
    with pytest.raises(errors.BreakerOpen, match="crm: the breaker is open for 10 s more") as refused:
        go()
    assert calls == 3
    assert refused.value.retry_at == clock.now() + timedelta(seconds=10)
    ended = outcome(refused.value)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.spent) == (0, "breaker_open", True)
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "attempts"


@pytest.mark.req("C-12")
def test_the_callers_error_is_raised_if_it_opens_the_breaker(clock: FakeClock) -> None:
    breaker = Breaker(min_calls=2, failure_rate=0.5, open_for=10)
    with pytest.raises(OSError, match="down") as caught:
        retry(STEADY, on=OSError, breaker=breaker).call(down())
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (2, "breaker_open")
    assert clock.slept == [1]
    assert ended.retry_at == clock.now() + timedelta(seconds=10)


@pytest.mark.req("C-12")
@pytest.mark.parametrize("colour", ["plain", "async", "block"])
def test_the_callers_error_is_raised_if_other_calls_open_the_breaker_meanwhile(
    clock: FakeClock, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaker = Breaker(min_calls=2, failure_rate=0.5, open_for=10)
    budget = Budget(capacity=50, cost=10, floor=0)
    sleep = FakeClock.sleep

    def slept(clock: FakeClock, wait: float) -> None:
        sleep(clock, wait)
        breaker.record(True, clock.monotonic())

    monkeypatch.setattr(FakeClock, "sleep", slept)
    layer = retry(STEADY, on=OSError, breaker=breaker, budget=budget)

    async def later() -> None:
        raise OSError("down")

    with pytest.raises(OSError, match="down") as caught:
        if colour == "plain":
            layer.call(down())
        elif colour == "async":
            asyncio.run(layer.acall(later))
        else:
            for attempt in layer.attempts():
                with attempt:
                    raise OSError("down")
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "breaker_open")
    assert ended.retry_at == clock.now() + timedelta(seconds=10)
    assert budget.left == 50


@pytest.mark.req("C-12")
def test_a_wait_longer_than_the_open_breaker_is_slept(clock: FakeClock) -> None:
    breaker = Breaker(min_calls=1, failure_rate=0.1, open_for=2)
    calls = 0

    def work() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError
        return calls

    layer = retry(RetryPolicy(max_attempts=3, backoff_base=5, jitter=0), on=OSError, breaker=breaker)
    assert layer.call(work) == 2
    assert breaker.state == "closed"


@pytest.mark.req("C-12")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interrupted_probe_does_not_count(clock: FakeClock, kind: type[BaseException]) -> None:
    breaker = Breaker(min_calls=1, failure_rate=0.1, open_for=2)
    layer = retry(RetryPolicy.disabled(), on=OSError, breaker=breaker)
    with pytest.raises(OSError, match="down"):
        layer.call(down())
    clock.advance(3)

    def interrupted() -> None:
        raise kind

    with pytest.raises(kind):
        layer.call(interrupted)
    assert layer.call(lambda: 1) == 1
    assert breaker.state == "closed"


@pytest.mark.req("C-12")
def test_permanent_errors_do_not_open_the_breaker(clock: FakeClock) -> None:
    breaker = Breaker(min_calls=1, failure_rate=0.1)
    for _ in range(5):
        with pytest.raises(KeyError):
            retry(STEADY, on=OSError, breaker=breaker).call(down(lambda: KeyError("x")))
    assert breaker.state == "closed"
