"""Clock: where time comes from. The only file of `core` that may look at a real one."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from datetime import datetime, timezone
from typing import Protocol


class Clock(Protocol):
    """Elapsed time, the time of day, and two ways to let time pass."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def now(self) -> datetime:
        """The moment, aware, in UTC."""

    def sleep(self, seconds: float, /) -> None:
        """Let time pass, in plain code."""

    def asleep(self, seconds: float, /) -> Awaitable[None]:
        """Let time pass, in async code."""


class SystemClock:
    """The machine's own clock. Anything may share it."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    @staticmethod
    def now() -> datetime:
        """The moment, aware, in UTC."""
        return datetime.now(timezone.utc)

    @staticmethod
    async def asleep(seconds: float, /) -> None:
        """Let time pass, in async code; a wait of 0 still lets other tasks run."""
        import asyncio  # noqa: PLC0415  # 45 ms that plain programs must not pay

        await asyncio.sleep(seconds)

    def __reduce__(self) -> str:
        return "SYSTEM"


SYSTEM: Clock = SystemClock()
