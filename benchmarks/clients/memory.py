"""Memory of a queued item, without the item itself."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks.clients.senders import ITEM, BatchLoop
from redrive.batch import SendBuffer


def measure_memory(waiters: int) -> dict[str, float]:
    """Return the bytes per queued item: the coroutine of `send`, its future and its place in the queue.

    The senders are coroutines without tasks, because the tasks do not belong to the buffer.
    """
    return {"SendBuffer": asyncio.run(_measure_buffer(waiters)), "handwritten batch loop": asyncio.run(_measure_loop(waiters))}


async def _measure_buffer(waiters: int) -> float:
    buffer: SendBuffer[bytes] = SendBuffer(_never, flush_interval=3600, max_waiting=waiters, max_batch_size=waiters + 1)
    size = _measure(buffer.send, waiters)
    await buffer.aclose()
    return size


async def _measure_loop(waiters: int) -> float:
    loop = BatchLoop(_never)
    size = _measure(loop.send, waiters)
    loop.close()
    return size


async def _never(_: object) -> Any:
    await asyncio.Event().wait()


def _measure(send: Callable[[bytes], Coroutine[Any, Any, None]], waiters: int) -> float:
    senders: list[Coroutine[Any, Any, None]] = [send(ITEM)]
    senders[0].send(None)  # the first item also creates shared objects
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1, waiters):
        sender = send(ITEM)
        sender.send(None)  # run until it waits for its result
        senders.append(sender)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    for sender in senders:
        sender.close()
    return size / waiters
