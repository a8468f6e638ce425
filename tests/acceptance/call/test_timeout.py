"""Real timers of a few milliseconds, and cancellations by the caller in every order within one loop iteration."""

from __future__ import annotations

import asyncio
import time

import pytest

from redrive import errors, outcome, retry
from tests.acceptance.call.timed import SHORT, ZERO, Use, cancelling, every_use, hang

pytestmark = pytest.mark.req("C-2", "C-6")


@every_use
def test_an_attempt_is_cancelled_at_its_timeout_and_retried(use: Use) -> None:
    calls = 0

    async def body() -> int:
        nonlocal calls
        calls += 1
        if calls < 3:
            await hang()
        return calls

    async def main() -> None:
        began = time.monotonic()
        assert await use(retry(ZERO, attempt_timeout=SHORT), body) == 3
        assert 2 * SHORT <= time.monotonic() - began < 60
        assert cancelling() == 0

    asyncio.run(main())


@every_use
def test_exhausted_attempts_raise_attempt_timeout(use: Use) -> None:
    async def main() -> None:
        with pytest.raises(errors.AttemptTimeout, match="attempt 3 took longer than 0.02 s") as caught:
            await use(retry(ZERO, attempt_timeout=SHORT, operation="crm"), hang)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
        ended = outcome(caught.value)
        assert ended is not None
        assert (ended.attempts, ended.reason) == (3, "attempts")
        assert cancelling() == 0

    asyncio.run(main())


@every_use
def test_a_timeout_error_of_the_callee_is_not_an_attempt_timeout(use: Use) -> None:
    async def body() -> None:
        raise TimeoutError("mine")

    async def main() -> None:
        with pytest.raises(TimeoutError, match="mine") as caught:
            await use(retry(ZERO, attempt_timeout=5), body)
        assert not isinstance(caught.value, errors.AttemptTimeout)

    asyncio.run(main())


@every_use
@pytest.mark.parametrize("order", ["caller first", "timer first"])
def test_cancellation_by_the_caller_wins_if_the_timer_fires_in_the_same_loop_iteration(use: Use, order: str) -> None:
    """The loop is blocked until both are due, so both fire before the task runs again."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        there = asyncio.Event()

        async def body() -> None:
            there.set()
            await hang()

        task = asyncio.create_task(use(retry(ZERO, attempt_timeout=SHORT), body))
        if order == "caller first":
            loop.call_later(SHORT / 2, task.cancel)
        await there.wait()
        if order == "timer first":
            loop.call_later(SHORT * 1.5, task.cancel)
        time.sleep(SHORT * 3)  # noqa: ASYNC251  # on purpose
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1

    asyncio.run(main())


@every_use
def test_an_attempt_that_completes_as_the_timer_fires_leaves_no_cancellation(use: Use) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls = 0

        async def body() -> int:
            nonlocal calls
            calls += 1
            done: asyncio.Future[int] = loop.create_future()
            if calls == 1:
                loop.call_later(SHORT / 2, done.set_result, 1)
                loop.call_soon(time.sleep, SHORT * 3)
            else:
                done.set_result(2)
            return await done

        assert await use(retry(ZERO, attempt_timeout=SHORT), body) in (1, 2)
        assert cancelling() == 0
        await asyncio.sleep(0)  # no cancellation is left for later awaits
        await asyncio.sleep(SHORT)

    asyncio.run(main())


@every_use
def test_a_timer_that_fires_during_cleanup_keeps_the_cancellation(use: Use) -> None:
    async def main() -> None:
        cut: list[str] = []
        there = asyncio.Event()

        async def body() -> None:
            try:
                there.set()
                await hang()
            finally:
                try:
                    await hang()
                except asyncio.CancelledError:
                    cut.append("clean-up")
                    raise

        task = asyncio.create_task(use(retry(ZERO, attempt_timeout=SHORT), body))
        await there.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cut == ["clean-up"]
        assert task.cancelling() == 1

    asyncio.run(main())


@every_use
def test_a_body_that_swallows_the_timeout_returns_its_result(use: Use) -> None:
    async def body() -> str:
        try:
            await hang()
        except asyncio.CancelledError:
            return "partial"
        return "never"

    async def main() -> None:
        assert await use(retry(ZERO, attempt_timeout=SHORT), body) == "partial"
        assert cancelling() == 0
        await asyncio.sleep(0)

    asyncio.run(main())


@every_use
def test_a_body_that_turns_the_timeout_into_an_error_is_retried(use: Use) -> None:
    calls = 0

    async def body() -> int:
        nonlocal calls
        calls += 1
        if calls < 3:
            try:
                await hang()
            finally:
                raise ConnectionError("while closing")
        return calls

    async def main() -> None:
        assert await use(retry(ZERO, attempt_timeout=SHORT), body) == 3
        assert cancelling() == 0

    asyncio.run(main())
