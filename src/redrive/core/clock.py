"""Clock: the source of time. Only this file of `core` may read the system clock."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from datetime import datetime, timezone
from typing import Protocol


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
        return datetime.now(timezone.utc)

    @staticmethod
    async def asleep(seconds: float, /) -> None:
        """Sleep in async code. A sleep of 0 lets other tasks run."""
        import asyncio  # noqa: PLC0415  # 45 ms that sync programs must not pay

        await asyncio.sleep(seconds)

    def __reduce__(self) -> str:
        return "SYSTEM"


SYSTEM: Clock = SystemClock()
