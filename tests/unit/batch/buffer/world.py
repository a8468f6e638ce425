"""A receiver that tests control, and a check that the event loop is left clean."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import grpc
import grpc.aio

from redrive.batch import BufferStats, SendBuffer


class Receiver:
    """Receives batches. Each waits for the response of the test, or is accepted at once."""

    def __init__(self, *answers: object, held: bool = False) -> None:
        self.batches: list[list[Any]] = []
        self.answers = list(answers)
        self.gates: list[asyncio.Future[object]] = []
        self.held = held
        self.cancelled = 0

    async def send(self, batch: list[Any]) -> Any:
        self.batches.append(batch)
        answer: object = None
        if self.held:
            gate: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            self.gates.append(gate)
            try:
                answer = await gate
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        elif self.answers:
            answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def got(self, batches: int) -> None:
        """Wait for this number of batches."""
        async with asyncio.timeout(60):
            while len(self.batches) < batches:  # noqa: ASYNC110  # this waits for iterations of the loop
                await asyncio.sleep(0)


def rpc_error(code: str, *trailers: tuple[str, str]) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(grpc.StatusCode[code], grpc.aio.Metadata(), grpc.aio.Metadata(*trailers), "as the test says")


def clean(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in a new event loop. It must leave no task and no unhandled error."""
    said: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context))
        await test
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"

    asyncio.run(run())
    gc.collect()
    assert not said, said


def run(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def wrapper() -> None:
        clean(test())  # type: ignore[arg-type]  # a coroutine function of this file

    del wrapper.__wrapped__  # otherwise pytest sees a coroutine function
    return wrapper


def tasks(buffer: SendBuffer[Any], *items: Any) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(buffer.send(item)) for item in items]


async def errors(sent: list[asyncio.Task[None]]) -> list[BaseException | None]:
    async with asyncio.timeout(60):
        return await asyncio.gather(*sent, return_exceptions=True)


async def checked_stats(buffer: SendBuffer[Any]) -> BufferStats:
    stats = buffer.stats
    gone = stats.accepted + stats.refused + stats.failed + stats.spilled + stats.withdrawn
    assert stats.entered == gone + stats.waiting + stats.in_flight
    return stats
