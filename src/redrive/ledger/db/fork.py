"""Fork: a SQLite file is closed while its process forks.

SQLite keeps the locks of a file in the memory of its process. A child has that memory, and not the locks: it would wait for
ever for a writer of its parent's, or read without the lock that keeps the write-ahead log from being reset. So before a fork
no connection is in use, and all are closed; parent and child open their own at the next use.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Protocol

PATIENCE = 5.0
"""Seconds to wait for other threads' transactions. Ours take milliseconds; one of the caller's own may take longer."""
LOOK = 0.0005
"""Seconds between two looks whether they have ended."""


class Pausing(Protocol):
    """A pool of connections that can be closed for a moment."""

    def pause(self) -> None:
        """Hand out nothing until `resume`; who asks waits."""

    def resume(self) -> None:
        """Hand out again."""

    def is_used_by_others(self) -> bool:
        """Whether another thread than this one has a connection."""

    def close_idle(self, seconds: float, /) -> None:
        """Close the idle connections, if that is possible within this time."""


_POOLS: weakref.WeakSet[Pausing] = weakref.WeakSet()


def close_before_fork(pool: Pausing, /) -> None:
    """Close the connections of this pool whenever its process forks, from now on."""
    _POOLS.add(pool)


def before(pools: Sequence[Pausing], /, *, patience: float = PATIENCE, clock: Callable[[], float] = monotonic) -> None:
    """Wait until no other thread uses a connection, and close all."""
    for pool in pools:
        pool.pause()
    end = clock() + patience
    while any(pool.is_used_by_others() for pool in pools) and clock() < end:
        sleep(LOOK)
    for pool in pools:
        pool.close_idle(max(LOOK, end - clock()))


def _before() -> None:
    before(list(_POOLS))


def _after_in_parent() -> None:
    for pool in list(_POOLS):
        pool.resume()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent)
