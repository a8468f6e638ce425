"""Objects that a call leaves for the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager


@contextmanager
def _alone() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # objects of other tests do not count
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def garbage(go: Callable[[], None]) -> int:
    """Return the number of objects of twenty calls that only the collector can free."""
    go()
    with _alone():
        for _ in range(20):
            go()
        return gc.collect()


async def agarbage(go: Callable[[], Awaitable[None]]) -> int:
    """The same in a running event loop."""
    await go()
    with _alone():
        for _ in range(20):
            await go()
        return gc.collect()
