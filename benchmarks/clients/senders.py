"""Three ways to send items of many waiters over one RPC: one for each item, a batch loop by hand, and the send buffer."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from redrive.batch import SendBuffer
from redrive.grpc import channel_options

BATCH = 50
ITEM = b"a signal of a task, about as large as signals are: one hundred bytes, with its id and its state....."
OPTIONS = channel_options()
MOST = 1_000
"""Calls at once: with 10,000 a channel fails some."""
Rpc = Callable[[bytes], Awaitable[bytes]]


class ByHand:
    """What one writes: a queue, a future for each sender, and a loop that sends what is there. No retry, no limit, no end."""

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


async def crowd(send: Callable[[bytes], Awaitable[None]], waiters: int, items: int) -> None:
    """So many senders, each with its share of the items, one after the other."""

    async def sender() -> None:
        for _ in range(items // waiters):
            await send(ITEM)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(waiters):
            tasks.create_task(sender())


async def one_by_one(rpc: Rpc, waiters: int, items: int) -> None:
    async def send(item: bytes) -> None:
        await rpc(item)

    await crowd(send, min(waiters, MOST), items)


async def by_hand(rpc: Rpc, waiters: int, items: int) -> None:
    if waiters == 1:  # it has all of them, and sends them in slices
        for start in range(0, items, BATCH):
            await rpc(b"".join([ITEM] * min(BATCH, items - start)))
        return
    loop = ByHand(rpc)
    await crowd(loop.send, waiters, items)
    loop.close()


async def buffered(rpc: Rpc, waiters: int, items: int, **options: Any) -> None:
    async def send(batch: list[bytes]) -> None:
        await rpc(b"".join(batch))

    async with SendBuffer(send, behind=OPTIONS, **options) as buffer:
        if waiters == 1:
            await buffer.send_all([ITEM] * items)
        else:
            await crowd(buffer.send, waiters, items)


async def one_at_a_time(rpc: Rpc, waiters: int, items: int) -> None:
    await buffered(rpc, waiters, items, in_flight=1)
