"""Every way to use an attempt timeout, and work that never ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from redrive import Retry, RetryPolicy

ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)
ONCE = RetryPolicy.disabled()
SHORT = 0.02
Body: TypeAlias = Callable[[], Awaitable[Any]]
Use: TypeAlias = Callable[[Retry, Body], Coroutine[Any, Any, Any]]


async def call_decorated(layer: Retry, body: Body) -> Any:
    """The fast path, with a queue of timers."""
    return await layer.acall(body)


async def whole(layer: Retry, body: Body) -> Any:
    """The reference loop, with its own timer."""
    return await layer.using(key=lambda: "a:b:c:d:v1").acall(body)


async def block(layer: Retry, body: Body) -> Any:
    async for attempt in layer.attempts():
        with attempt:
            return await body()
    return None


every_use = pytest.mark.parametrize("use", [call_decorated, whole, block], ids=lambda use: use.__name__)


async def hang() -> None:
    await asyncio.get_running_loop().create_future()


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()
