"""What an item costs while it waits, beside itself."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks.clients.senders import ITEM, ByHand
from redrive.batch import SendBuffer


def memory(waiters: int) -> dict[str, float]:
    """Bytes: its sender's place in `send`, its future, and the queue's own.

    The senders are coroutines without a task: whose task it is that waits is not the buffer's affair.
    """
    return {"SendBuffer": asyncio.run(_buffer(waiters)), "batch loop by hand": asyncio.run(_by_hand(waiters))}


async def _buffer(waiters: int) -> float:
    made: SendBuffer[bytes] = SendBuffer(_never, flush_interval=3600, max_waiting=waiters, max_batch_size=waiters + 1)
    held = _held(made.send, waiters)
    await made.aclose()
    return held


async def _by_hand(waiters: int) -> float:
    made = ByHand(_never)
    held = _held(made.send, waiters)
    made.close()
    return held


async def _never(_: object) -> Any:
    await asyncio.Event().wait()


def _held(send: Callable[[bytes], Coroutine[Any, Any, None]], waiters: int) -> float:
    senders: list[Coroutine[Any, Any, None]] = [send(ITEM)]
    senders[0].send(None)  # what is made once is not counted
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1, waiters):
        sender = send(ITEM)
        sender.send(None)  # as far as it goes: it waits for its answer now
        senders.append(sender)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    for sender in senders:
        sender.close()
    return held / waiters
