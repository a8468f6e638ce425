"""Three ways to send items of concurrent senders: one RPC per item, a handwritten batch loop, and the send buffer."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from redrive.batch import SendBuffer
from redrive.grpc import channel_options

BATCH = 50
ITEM = b"a signal of a task, about as large as signals are: one hundred bytes, with its id and its state....."
OPTIONS = channel_options()
MAX_CALLS = 1_000
"""Maximum number of concurrent calls. With 10,000, a channel fails some of them."""
Rpc = Callable[[bytes], Awaitable[bytes]]


class BatchLoop:
    """A handwritten loop with a queue and a future per item. It has no retries, limits or shutdown."""

    def __init__(self, rpc: Callable[[bytes], Awaitable[Any]]) -> None:
        self._rpc = rpc
        self._queue: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def send(self, item: bytes) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((item, future))
        self._wake.set()
        await future

    async def _run(self) -> None:
        queue = self._queue
        while True:
            await self._wake.wait()
            self._wake.clear()
            while queue:
                batch = [queue.popleft() for _ in range(min(BATCH, len(queue)))]
                await self._rpc(b"".join([item for item, _ in batch]))
                for _, future in batch:
                    future.set_result(None)

    def close(self) -> None:
        self._task.cancel()


async def send_concurrently(send: Callable[[bytes], Awaitable[None]], waiters: int, items: int) -> None:
    """Divide the items among the senders. Each sender sends one item after the other."""

    async def sender() -> None:
        for _ in range(items // waiters):
            await send(ITEM)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(waiters):
            tasks.create_task(sender())


async def send_single_items(rpc: Rpc, waiters: int, items: int) -> None:
    async def send(item: bytes) -> None:
        await rpc(item)

    await send_concurrently(send, min(waiters, MAX_CALLS), items)


async def send_with_loop(rpc: Rpc, waiters: int, items: int) -> None:
    if waiters == 1:  # one sender has all items, so it sends slices
        for start in range(0, items, BATCH):
            await rpc(b"".join([ITEM] * min(BATCH, items - start)))
        return
    loop = BatchLoop(rpc)
    await send_concurrently(loop.send, waiters, items)
    loop.close()


async def send_with_buffer(rpc: Rpc, waiters: int, items: int, **options: Any) -> None:
    async def send(batch: list[bytes]) -> None:
        await rpc(b"".join(batch))

    async with SendBuffer(send, behind=OPTIONS, **options) as buffer:
        if waiters == 1:
            await buffer.send_all([ITEM] * items)
        else:
            await send_concurrently(buffer.send, waiters, items)


async def send_with_one_in_flight(rpc: Rpc, waiters: int, items: int) -> None:
    await send_with_buffer(rpc, waiters, items, in_flight=1)
