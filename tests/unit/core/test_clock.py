"""The system clock: elapsed time, current time, and waiting."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta, timezone

import pytest

from redrive.core.clock import SYSTEM, SystemClock


def test_monotonic_and_sleep_use_the_system_clock() -> None:
    assert SystemClock.monotonic is time.monotonic
    assert SystemClock.sleep is time.sleep


def test_now_is_aware_and_in_utc() -> None:
    now = SYSTEM.now()
    assert now.tzinfo is timezone.utc
    assert abs(now - datetime.now(timezone.utc)) < timedelta(minutes=1)


def test_an_async_wait_of_zero_lets_other_tasks_run() -> None:
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    async def main() -> None:
        task = asyncio.create_task(other())
        await SYSTEM.asleep(0)
        order.append("main")
        await task

    asyncio.run(main())
    assert order == ["other", "main"]


def test_an_async_wait_uses_asyncio_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def note(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", note)
    asyncio.run(SystemClock.asleep(2.5))
    assert slept == [2.5]
