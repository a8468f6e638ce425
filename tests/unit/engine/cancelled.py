"""Every use of a retry in async code, every type of layer, and an attempt that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from redrive import Retry, RetryPolicy, retry

ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)
SLOW = RetryPolicy(max_attempts=3, backoff_base=1000, backoff_max=1000, jitter=0)
Body: TypeAlias = Callable[[], Awaitable[Any]]
Use: TypeAlias = Callable[[Retry, Body], Coroutine[Any, Any, Any]]


async def call_decorated(layer: Retry, body: Body) -> Any:
    @layer
    async def call() -> Any:
        return await body()

    return await call()


async def block(layer: Retry, body: Body) -> Any:
    async for attempt in layer.attempts():
        with attempt:
            return await body()
    return None


async def open_generator(layer: Retry, body: Body) -> Any:
    @layer
    async def items() -> Any:
        yield await body()

    return [item async for item in items()]


USES: list[Use] = [call_decorated, block, open_generator]
LAYERS = {
    "timed": retry(ZERO, on=OSError),
    "untimed": retry(ZERO, on=OSError, attempt_timeout=None),
    "whole": retry(ZERO, on=OSError, key=lambda *_, **__: "a:b:c:d:v1"),
    "limited": retry(RetryPolicy(max_attempts=3, backoff_base=0, jitter=0, timeout=60), on=OSError),
}

every_use = pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
every_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


class Hang:
    """A body that hangs until it is cancelled, and signals that it has started."""

    def __init__(self, then: Callable[[], Any] | None = None) -> None:
        self.calls = 0
        self.there = asyncio.Event()
        self._then = then

    async def __call__(self) -> Any:
        self.calls += 1
        self.there.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if self._then is None:
                raise
            return self._then()
