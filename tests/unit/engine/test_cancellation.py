"""A cancellation by the caller reaches the caller at any time. Nothing here waits, because attempts hang on futures."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from redrive import Retry, retry
from redrive.testing import instant
from tests.unit.engine.cancelled import SLOW, Hang, Use, call_decorated, every_layer, every_use

pytestmark = pytest.mark.req("C-2", "C-6")


@every_layer
@every_use
def test_a_call_cancelled_before_the_first_attempt_makes_none(use: Use, layer: Retry) -> None:
    async def main() -> None:
        hang = Hang()
        task = asyncio.create_task(use(layer, hang))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert hang.calls == 0

    asyncio.run(main())


@every_layer
@every_use
def test_a_call_cancelled_during_an_attempt_is_cancelled(use: Use, layer: Retry) -> None:
    async def main() -> None:
        hang = Hang()
        task = asyncio.create_task(use(layer, hang))
        await hang.there.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (hang.calls, task.cancelling()) == (1, 1)

    asyncio.run(main())


@every_use
@pytest.mark.parametrize("limit", [60, None])
def test_a_call_cancelled_during_a_wait_is_cancelled(use: Use, limit: float | None) -> None:
    async def main() -> None:
        calls = 0
        failing = asyncio.Event()

        async def fail() -> None:
            nonlocal calls
            calls += 1
            failing.set()
            raise OSError

        task = asyncio.create_task(use(retry(SLOW, on=OSError, attempt_timeout=limit), fail))
        await failing.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert calls == 1
        assert isinstance(caught.value.__context__, OSError | type(None))

    asyncio.run(main())


@every_layer
@every_use
def test_cancellation_wins_if_the_attempt_completes_in_the_same_loop_iteration(use: Use, layer: Retry) -> None:
    async def main() -> None:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        there = asyncio.Event()

        async def body() -> int:
            there.set()
            return await done

        task = asyncio.create_task(use(layer, body))
        await there.wait()
        done.set_result(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@every_layer
@every_use
def test_cancellation_wins_if_the_attempt_fails_in_the_same_loop_iteration(use: Use, layer: Retry) -> None:
    async def main() -> None:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        there = asyncio.Event()
        calls = 0

        async def body() -> int:
            nonlocal calls
            calls += 1
            there.set()
            return await done

        task = asyncio.create_task(use(layer, body))
        await there.wait()
        done.set_exception(OSError())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        done.exception()
        assert calls == 1

    asyncio.run(main())


@every_layer
@every_use
@pytest.mark.parametrize("waits", ["in its body", "for its tasks"])
def test_a_failed_task_group_is_retried(use: Use, layer: Retry, waits: str) -> None:
    """Until Python 3.13 it leaves an unintended cancellation."""
    layer = layer.using(on=lambda error: isinstance(error, ExceptionGroup))

    async def main() -> None:
        calls = 0

        async def leaf() -> None:
            await asyncio.sleep(0)
            if calls < 3:
                raise OSError

        async def body() -> int:
            nonlocal calls
            calls += 1
            async with asyncio.TaskGroup() as group:
                group.create_task(leaf())
                if waits == "in its body":
                    for _ in range(5):
                        await asyncio.sleep(0)
            return calls

        assert await use(layer, body) in (3, [3])

    asyncio.run(main())


@every_layer
@every_use
def test_a_caller_may_cancel_twice(use: Use, layer: Retry) -> None:
    async def main() -> None:
        reached = asyncio.Event()

        async def stubborn() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                reached.set()
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(use(layer, stubborn))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 2

    asyncio.run(main())


@every_layer
@every_use
def test_a_cancelled_error_raised_by_the_attempt_is_not_retried(use: Use, layer: Retry) -> None:
    async def main() -> None:
        calls = 0

        async def body() -> None:
            nonlocal calls
            calls += 1
            other = asyncio.get_running_loop().create_future()
            other.cancel()
            await other

        with pytest.raises(asyncio.CancelledError):
            await use(layer, body)
        assert calls == 1
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    asyncio.run(main())


@every_layer
@every_use
def test_a_surrounding_task_group_cancels_its_calls(use: Use, layer: Retry) -> None:
    async def main() -> None:
        hang = Hang()

        async def breaks() -> None:
            await hang.there.wait()
            raise KeyError

        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(use(layer, hang))
                group.create_task(breaks())
        assert [type(error) for error in caught.value.exceptions] == [KeyError]
        assert hang.calls == 1

    asyncio.run(main())


@every_layer
@every_use
def test_a_retried_call_restores_the_cancellation_count_of_its_task(use: Use, layer: Retry) -> None:
    """The count of cancellations is restored after success and after failure."""

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None

        async def good() -> int:
            return 1

        async def bad() -> int:
            raise OSError("down")

        with instant():
            await use(layer, good)
            with pytest.raises(OSError, match="down"):
                await use(layer, bad)
        assert task.cancelling() == 0

    asyncio.run(main())


@every_layer
def test_a_dropped_coroutine_logs_nothing(layer: Retry) -> None:
    """Closed in another context than it ran in, like tasks that remain in an event loop."""
    loop = asyncio.new_event_loop()
    hang: list[Hang] = []

    async def started() -> Coroutine[Any, Any, Any]:
        hang.append(Hang())
        running = call_decorated(layer, hang[0])
        wrapped = loop.create_task(running)
        await hang[0].there.wait()
        wrapped._log_destroy_pending = False  # type: ignore[attr-defined]
        return running

    coroutine = loop.run_until_complete(started())
    coroutine.close()  # not in the task's context, where our ValueError would be raised
    loop.close()
