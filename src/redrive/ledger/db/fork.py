"""Close SQLite files while their process forks.

SQLite keeps the locks of a file in the memory of its process. A forked child has a copy of that
memory, but not the locks. It would wait forever for a writer of its parent, or read without the
lock that keeps the write-ahead log from being reset. So all connections are closed before a fork.
Parent and child open their own at the next use.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pool import Pool

PATIENCE_SECONDS = 5.0
"""How long to wait for transactions of other threads. Ours take milliseconds, a caller's may
not."""
POLL_SECONDS = 0.0005


_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()


def close_before_fork(pool: Pool, /) -> None:
    """Close the connections of this pool whenever the process forks."""
    _POOLS.add(pool)


def before(
    pools: Sequence[Pool],
    /,
    *,
    patience: float = PATIENCE_SECONDS,
    clock: Callable[[], float] = monotonic,
) -> None:
    """Wait until no other thread uses a connection, then close all."""
    for pool in pools:
        pool.pause()
    end = clock() + patience
    while any(pool.is_used_by_others() for pool in pools) and clock() < end:
        sleep(POLL_SECONDS)
    for pool in pools:
        pool.close_idle(max(POLL_SECONDS, end - clock()))


def _before() -> None:
    before(list(_POOLS))


def _after_in_parent() -> None:
    for pool in list(_POOLS):
        pool.resume()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent)
