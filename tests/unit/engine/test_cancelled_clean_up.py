"""Cleanup after a cancellation may raise, swallow or retry. The cancellation still reaches the caller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redrive import Retry, outcome
from tests.unit.engine.cancelled import Hang, Use, call_decorated, every_layer, every_use

pytestmark = pytest.mark.req("C-2", "C-6")


@every_layer
@every_use
def test_an_error_raised_by_cleanup_after_a_cancellation_is_not_retried(use: Use, layer: Retry) -> None:
    def broken() -> Any:
        raise OSError("while closing")

    async def main() -> None:
        hang = Hang(broken)
        task = asyncio.create_task(use(layer, hang))
        await hang.there.wait()
        task.cancel()
        with pytest.raises(OSError, match="while closing") as caught:
            await task
        assert (hang.calls, task.cancelling()) == (1, 1)
        ended = outcome(caught.value)
        assert ended is not None
        assert (ended.reason, ended.spent) == ("stopped", False)

    asyncio.run(main())


@every_layer
def test_an_error_raised_by_cleanup_in_a_later_attempt_is_not_retried(layer: Retry) -> None:
    async def main() -> None:
        there = asyncio.Event()
        calls = 0

        async def body() -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise OSError
            there.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                raise OSError("while closing")

        task = asyncio.create_task(call_decorated(layer, body))
        await there.wait()
        task.cancel()
        with pytest.raises(OSError, match="while closing"):
            await task
        assert calls == 2

    asyncio.run(main())


@every_layer
@every_use
def test_cleanup_that_swallows_the_cancellation_returns_its_result(use: Use, layer: Retry) -> None:
    async def main() -> None:
        hang = Hang(lambda: "kept")
        task = asyncio.create_task(use(layer, hang))
        await hang.there.wait()
        task.cancel()
        assert await task in ("kept", ["kept"])
        assert task.cancelling() == 1

    asyncio.run(main())


@every_layer
@every_use
def test_cleanup_of_a_cancelled_task_may_retry(use: Use, layer: Retry) -> None:
    async def main() -> None:
        there = asyncio.Event()
        calls = 0

        async def fails_once() -> int:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise OSError
            return calls

        async def cleans_up() -> None:
            there.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                await use(layer, fails_once)
                raise

        task = asyncio.create_task(cleans_up())
        await there.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert calls == 2

    asyncio.run(main())
