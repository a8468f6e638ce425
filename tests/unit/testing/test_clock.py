"""FakeClock and instant(): waits end at once, in this context only."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest

from redrive import RetryPolicy, attempts, current, deadline, retry
from redrive.core.clock import SYSTEM
from redrive.core.context import SLOW_PATH_USERS, Simulation, clock_around
from redrive.testing import FakeClock, inject, instant

STEADY = RetryPolicy(max_attempts=3, backoff_base=100, backoff_max=1000, jitter=0)


class Flaky:
    def __init__(self) -> None:
        self.calls = 0

    def plain(self) -> int:
        self.calls += 1
        if self.calls < 3:
            raise ConnectionError
        return self.calls

    async def later(self) -> int:
        return self.plain()


def test_sleeping_moves_the_clock() -> None:
    clock = FakeClock()
    start, moment = clock.monotonic(), clock.now()
    clock.sleep(2)
    clock.advance(timedelta(seconds=3))
    clock.sleep(0)
    clock.sleep(-1)
    asyncio.run(clock.asleep(1.5))
    assert clock.slept == [2, 1.5]
    assert clock.monotonic() - start == pytest.approx(6.5)
    assert clock.now() - moment == timedelta(seconds=6.5)
    assert clock.now().tzinfo is not None


def test_a_clock_starts_at_the_given_time() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    clock = FakeClock(noon)
    clock.advance(60)
    assert clock.now() == noon + timedelta(minutes=1)
    with pytest.raises(ValueError, match="with a time zone"):
        FakeClock(noon.replace(tzinfo=None))


def test_waits_add_up_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    for started in (0.1, 1234.5678901, 8191.9999999, 1e7 / 3):
        monkeypatch.setattr("redrive.testing.clock.time.monotonic", lambda started=started: started)
        with instant() as clock, deadline(7):
            clock.advance(0.125)
            assert current().remaining == 6.875


@pytest.mark.parametrize("wrong", [-1, "5", None, True, float("nan")])
def test_time_does_not_go_backwards(wrong: object) -> None:
    with pytest.raises((TypeError, ValueError), match="advance must"):
        FakeClock().advance(wrong)  # type: ignore[arg-type]


def test_every_use_in_sync_and_async_code() -> None:
    with instant() as clock:
        assert retry(STEADY)(Flaky().plain)() == 3
        assert retry(STEADY).call(Flaky().plain) == 3
        assert asyncio.run(retry(STEADY)(Flaky().later)()) == 3
        assert asyncio.run(retry(STEADY).acall(Flaky().later)) == 3
        flaky = Flaky()
        for attempt in attempts(STEADY):
            with attempt:
                flaky.plain()

        async def block() -> None:
            flaky = Flaky()
            async for attempt in attempts(STEADY):
                with attempt:
                    await flaky.later()

        asyncio.run(block())
    assert clock.slept == [100, 200] * 6


def test_a_simulated_clock_ends_with_its_block() -> None:
    with pytest.raises(ZeroDivisionError), instant():
        raise ZeroDivisionError
    assert clock_around() is SYSTEM
    assert not [one for one in SLOW_PATH_USERS if isinstance(one, Simulation)]


def test_an_inner_clock_replaces_the_outer_one() -> None:
    with instant() as outer:
        with instant(jitter=0.5) as inner:
            retry(RetryPolicy(backoff_base=1, jitter=2)).call(Flaky().plain)
        retry(RetryPolicy(backoff_base=1, jitter=2)).call(Flaky().plain)
    assert inner.slept == [2, 3]
    assert outer.slept == [1, 2]


def test_outer_faults_apply_inside() -> None:
    layer = retry(STEADY)
    with inject(layer, ConnectionError), instant() as clock:
        assert layer.call(lambda: 1) == 1
    assert clock.slept == [100]


def test_another_thread_is_not_affected() -> None:
    seen: list[object] = []
    with instant() as clock:
        thread = threading.Thread(target=lambda: seen.append(clock_around()))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(contextvars.copy_context().run, lambda: seen.append(clock_around())).result()
    assert seen == [SYSTEM, clock]


def test_tasks_may_have_different_clocks() -> None:
    async def work(jitter: float) -> list[float]:
        with instant(jitter=jitter) as clock:
            await retry(RetryPolicy(backoff_base=1, jitter=8)).acall(Flaky().later)
            return clock.slept

    async def main() -> None:
        outside = asyncio.create_task(untouched())
        waits = await asyncio.gather(*(work(number / 8) for number in range(8)))
        assert waits == [[1 + number, 2 + number] for number in range(8)]
        await outside

    async def untouched() -> None:
        for _ in range(20):
            assert clock_around() is SYSTEM
            await asyncio.sleep(0)

    asyncio.run(main())
    assert not [one for one in SLOW_PATH_USERS if isinstance(one, Simulation)]


def test_clocks_of_many_threads_are_independent() -> None:
    def work() -> None:
        for _ in range(200):
            with instant() as clock, inject("none"):
                assert clock_around() is clock
                retry(STEADY).call(lambda: 1)

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(work) for _ in range(8)]:
            future.result()
    assert not [one for one in SLOW_PATH_USERS if isinstance(one, Simulation)]


def test_tasks_started_inside_use_the_clock() -> None:
    async def main() -> None:
        with instant() as clock:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(retry(STEADY).acall(Flaky().later))
            assert task.result() == 3
        assert clock.slept == [100, 200]

    asyncio.run(main())


def test_a_seed_repeats_its_draws() -> None:
    waits = []
    for _ in range(2):
        with instant(seed=7) as clock:
            retry(RetryPolicy(backoff_base=1, jitter=1)).call(Flaky().plain)
        waits.append(clock.slept)
    assert waits[0] == waits[1]
    assert waits[0] != [1, 2]


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_a_jitter_outside_of_0_to_1_is_rejected(wrong: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"), instant(jitter=wrong):
        pass
