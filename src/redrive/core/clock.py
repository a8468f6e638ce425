"""Clock: the source of time. Only this file of `core` may read the system clock."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from datetime import datetime


class Clock(Protocol):
    """Monotonic time, the time of day, and sleeping in sync and async code."""

    def monotonic(self) -> float:
        """Return seconds that never decrease."""

    def now(self) -> datetime:
        """Return the current time in UTC, with a time zone."""

    def sleep(self, seconds: float, /) -> None:
        """Sleep in sync code."""

    def asleep(self, seconds: float, /) -> Awaitable[None]:
        """Sleep in async code."""


class SystemClock:
    """The clock of the machine. Threads may share it."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    @staticmethod
    def now() -> datetime:
        """Return the current time in UTC, with a time zone."""
        from datetime import datetime, timezone  # noqa: PLC0415  # 1 ms, and only failures need it

        return datetime.now(timezone.utc)

    @staticmethod
    def asleep(seconds: float, /) -> Coroutine[Any, Any, None]:
        """Sleep in async code. A sleep of 0 lets other tasks run."""
        import asyncio  # noqa: PLC0415  # 45 ms that sync programs must not pay

        return asyncio.sleep(seconds)

    def __reduce__(self) -> str:
        return "SYSTEM"


SYSTEM: Clock = SystemClock()


def time_after(clock: Clock, seconds: float, /) -> datetime:
    """Return the time of day in `seconds` from now."""
    from datetime import timedelta  # noqa: PLC0415  # 1 ms, and only failures need it

    return clock.now() + timedelta(seconds=seconds)
