"""Nested and concurrent timeouts, in real time."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from redrive import RetryPolicy, deadline, errors, retry
from redrive.core.clock import SystemClock
from tests.acceptance.call.timed import ONCE, SHORT, ZERO, Use, cancelling, every_use, hang
from tests.unit.engine.garbage import agarbage

pytestmark = pytest.mark.req("C-2", "C-6")


@every_use
@pytest.mark.parametrize("outer", [SHORT, SHORT * 2.5])
def test_a_surrounding_asyncio_timeout_is_not_an_attempt_timeout(use: Use, outer: float) -> None:
    async def main() -> None:
        layer = retry(RetryPolicy(max_attempts=50, backoff_base=0, jitter=0), attempt_timeout=SHORT)
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(outer):
                await use(layer, hang)
        assert not isinstance(caught.value, errors.AttemptTimeout)
        assert cancelling() == 0

    asyncio.run(main())


@every_use
def test_an_inner_asyncio_timeout_is_retried(use: Use) -> None:
    calls = 0

    async def body() -> int:
        nonlocal calls
        calls += 1
        async with asyncio.timeout(SHORT if calls < 3 else 5):
            if calls < 3:
                await hang()
        return calls

    async def main() -> None:
        assert await use(retry(ZERO, attempt_timeout=5), body) == 3
        assert cancelling() == 0

    asyncio.run(main())


@every_use
def test_nested_timers_that_fire_together_leave_no_cancellation(use: Use) -> None:
    calls = 0
    limit = 0.3  # long enough for the inner attempt to begin on a busy machine

    async def body() -> None:
        nonlocal calls
        calls += 1
        asyncio.get_running_loop().call_soon(time.sleep, limit * 1.5)
        await hang()

    async def main() -> None:
        inner = retry(ONCE, attempt_timeout=limit, operation="inner")
        with pytest.raises(errors.AttemptTimeout) as caught:
            await use(retry(ONCE, attempt_timeout=limit, operation="outer"), lambda: use(inner, body))
        assert str(caught.value).startswith(("outer", "inner"))
        assert cancelling() == 0
        await asyncio.sleep(0)

    asyncio.run(main())
    assert calls == 1


@every_use
def test_a_task_group_inside_an_attempt_is_cancelled_completely(use: Use) -> None:
    ended: list[int] = []

    async def member(number: int) -> None:
        try:
            await hang()
        finally:
            ended.append(number)

    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(member(number))

    async def main() -> None:
        with pytest.raises(errors.AttemptTimeout):
            await use(retry(ZERO, attempt_timeout=SHORT), body)
        assert sorted(ended) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert cancelling() == 0

    asyncio.run(main())


@every_use
@pytest.mark.req("C-8")
def test_the_remaining_deadline_shortens_an_attempt(use: Use) -> None:
    async def main() -> None:
        began = time.monotonic()
        with deadline(SHORT), pytest.raises(errors.AttemptTimeout):
            await use(retry(ZERO, attempt_timeout=300), hang)
        assert time.monotonic() - began < 60
        assert cancelling() == 0

    asyncio.run(main())


@every_use
def test_a_blocked_event_loop_cancels_only_expired_attempts(use: Use) -> None:
    """A hundred attempts expire in one loop iteration, and only their tasks are cancelled."""

    async def main() -> None:
        async def quick() -> str:
            return "quick"

        slow = [asyncio.create_task(use(retry(ONCE, attempt_timeout=SHORT), hang)) for _ in range(100)]
        await asyncio.sleep(0)
        time.sleep(SHORT * 2)  # noqa: ASYNC251  # on purpose
        fast = [asyncio.create_task(use(retry(ONCE, attempt_timeout=SHORT), quick)) for _ in range(100)]
        ends = await asyncio.gather(*slow, return_exceptions=True)
        assert {type(end) for end in ends} == {errors.AttemptTimeout}
        assert set(await asyncio.gather(*fast)) == {"quick"}
        assert all(task.cancelling() == 0 for task in slow)

    asyncio.run(main())


def test_tasks_of_one_function_share_a_timer_queue() -> None:
    calls = 0

    @retry(ZERO, attempt_timeout=SHORT)
    async def flaky(number: int) -> int:
        nonlocal calls
        calls += 1
        if number % 3 == 0:
            await hang()
        await asyncio.sleep(SHORT / 10 * (number % 5))
        return number

    async def main() -> None:
        ends = await asyncio.gather(*(flaky(number) for number in range(60)), return_exceptions=True)
        for number, end in enumerate(ends):
            if number % 3 == 0:
                assert isinstance(end, errors.AttemptTimeout)
            elif not isinstance(end, errors.AttemptTimeout):  # on a sufficiently busy machine
                assert end == number

    asyncio.run(main())
    assert calls >= 40 + 60


@pytest.mark.req("C-4")
@every_use
def test_a_timeout_leaves_no_reference_cycle(use: Use) -> None:
    layer = retry(RetryPolicy(max_attempts=2, backoff_base=0, jitter=0), attempt_timeout=0.002, operation="o")

    async def go() -> None:
        try:
            await use(layer, hang)
        except TimeoutError:
            pass

    async def settled() -> None:
        await go()
        await asyncio.sleep(0.001)

    assert asyncio.run(agarbage(settled)) == 0


@pytest.mark.req("R-5")
def test_a_timeout_of_the_policy_holds_in_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """tenacity's stop_after_delay stops at 0.56 s for a limit of 0.30 s."""
    slept: list[float] = []

    asleep = time.sleep

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        asleep(seconds)

    monkeypatch.setattr(SystemClock, "sleep", staticmethod(sleep))
    monkeypatch.setattr("redrive.engine.fastpath.sleep", sleep)
    starts = 0

    def work() -> None:
        nonlocal starts
        starts += 1
        raise ConnectionError

    with pytest.raises(ConnectionError):
        retry(RetryPolicy(max_attempts=99, backoff_base=0.125, backoff_max=0.125, jitter=0, timeout=0.3)).call(work)
    assert sum(slept) <= 0.3  # a wait that does not fit is not started
    assert starts - 1 <= len(slept) <= starts <= 3  # a busy machine oversleeps and then makes no further attempt


def test_timeouts_leave_no_thread() -> None:
    before = threading.active_count()

    async def main() -> None:
        with pytest.raises(errors.AttemptTimeout):
            await retry(ZERO, attempt_timeout=SHORT).acall(hang)

    asyncio.run(main())
    assert threading.active_count() == before
