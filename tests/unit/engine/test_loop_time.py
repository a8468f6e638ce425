"""Time in the loops: waits that are slept or skipped, and very many of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redrive import Budget, Retry, RetryPolicy, outcome, retry
from redrive.testing import FakeClock, instant
from tests.unit.engine.ways import WAYS, Work, raiser


def test_zero_waits_are_not_slept(layer: Retry, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("redrive.engine.fastpath.sleep", slept.append)
    work, _ = raiser(OSError, OSError)
    layer.call(work)
    assert slept == []
    with instant() as clock:
        work, _ = raiser(OSError, OSError)
        layer.call(work)
    assert clock.slept == []


def test_a_zero_wait_in_async_code_yields_to_other_tasks(layer: Retry) -> None:
    order: list[str] = []

    @layer
    async def call() -> None:
        order.append("attempt")
        if order.count("attempt") < 3:
            raise OSError

    async def other() -> None:
        for _ in range(8):
            order.append("other")
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(call(), other())

    asyncio.run(main())
    assert order.index("other") < order.index("attempt", 1)


def test_a_hundred_thousand_attempts_are_made() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise OSError("down")

    layer = retry(max_attempts=100_000, backoff_base=1, jitter=1, on=OSError)
    with instant() as clock, pytest.raises(OSError, match="down") as caught:
        layer.call(work)
    assert calls == 100_000
    assert len(clock.slept) == 99_999
    assert max(clock.slept) <= 6
    note = caught.value.__notes__[0]
    assert "after 100000 attempts" in note
    assert ", … s)" in note
    assert len(note) < 300


def test_a_hundred_thousand_attempts_are_made_without_a_simulation() -> None:
    calls = 0

    @retry(RetryPolicy(max_attempts=100_000, backoff_base=0, jitter=0), on=OSError, attempt_timeout=None)
    def work() -> None:
        nonlocal calls
        calls += 1
        raise OSError("down")

    with pytest.raises(OSError, match="down"):
        work()
    assert calls == 100_000


def test_a_clock_that_jumps_backwards_does_not_stop_retries() -> None:
    class Jumping(FakeClock):
        def monotonic(self) -> float:
            self._passed -= 100
            return super().monotonic()

    from redrive.core.context import Simulation, simulate

    with simulate(Simulation(Jumping())):
        for options in WAYS.values():
            work, calls = raiser(OSError, OSError, OSError)
            with pytest.raises(OSError, match="failure 3") as caught:
                retry(max_attempts=3, backoff_base=1, jitter=0, on=OSError, **options).call(work)
            assert len(calls) == 3
            assert outcome(caught.value) is not None


@pytest.mark.req("R-5")
def test_a_wait_that_does_not_fit_is_not_slept(clock: FakeClock, make_call: Callable[[Retry, Work], Work]) -> None:
    layer = retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=6), on=OSError)
    work, calls = raiser(*[OSError] * 9)
    with pytest.raises(OSError, match="failure 3") as caught:
        make_call(layer, work)()
    assert (len(calls), clock.slept) == (3, [1, 2])
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.reason, ended.elapsed) == ("timeout", 3)
    assert ended.retry_at is not None
    assert (ended.retry_at - clock.now()).total_seconds() == 4


@pytest.mark.req("R-5")
def test_one_long_attempt_is_not_interrupted(clock: FakeClock) -> None:
    layer = retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=6), on=OSError)

    def slow() -> str:
        clock.advance(100)
        return "late"

    assert layer.call(slow) == "late"

    def slow_and_broken() -> None:
        clock.advance(100)
        raise OSError("late")

    with pytest.raises(OSError, match="late") as caught:
        layer.call(slow_and_broken)
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "timeout")


@pytest.mark.req("R-5")
@pytest.mark.parametrize("attempts_before", [1, 2])
def test_oversleeping_raises_the_last_error(
    clock: FakeClock, make_call: Callable[[Retry, Work], Work], monkeypatch: pytest.MonkeyPatch, attempts_before: int
) -> None:
    sleep = FakeClock.sleep

    def heavy(clock: FakeClock, wait: float) -> None:
        sleep(clock, wait if len(clock.slept) < attempts_before - 1 else wait + 100)

    monkeypatch.setattr(FakeClock, "sleep", heavy)
    budget = Budget(capacity=100, cost=10, floor=0)
    layer = retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=30), on=OSError, budget=budget)
    work, calls = raiser(*[OSError] * 9)
    with pytest.raises(OSError, match=f"failure {attempts_before}") as caught:
        make_call(layer, work)()
    assert len(calls) == attempts_before
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (attempts_before, "timeout")
    assert budget.left == 100 - 10 * (attempts_before - 1)  # the retry that was not made is not charged


def test_a_rule_with_changing_results_does_not_hide_the_error(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = FakeClock.sleep
    monkeypatch.setattr(FakeClock, "sleep", lambda clock, wait: sleep(clock, wait + 100))
    asked = 0

    def rule(_: Exception) -> bool:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise ZeroDivisionError
        return True

    layer = retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=30), on=rule)
    with pytest.raises(OSError, match="failure 1"):
        layer.call(raiser(OSError)[0])
