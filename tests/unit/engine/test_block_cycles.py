"""Blocks that fail leave nothing for the garbage collector."""

from __future__ import annotations

import asyncio

import pytest

from redrive import RetryPolicy, retry
from redrive.testing import FakeClock, instant
from tests.unit.engine.garbage import agarbage, garbage

ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)


@pytest.mark.req("C-4")
@pytest.mark.parametrize("how", ["spent", "overslept", "interrupted"])
def test_a_block_leaves_no_reference_cycle(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = retry(RetryPolicy(max_attempts=3, backoff_base=1, jitter=0, timeout=20), on=ValueError)
    sleep = FakeClock.sleep

    def slept(clock: FakeClock, wait: float) -> None:
        sleep(clock, wait * 50 if how == "overslept" else wait)
        if how == "interrupted":
            raise KeyboardInterrupt

    monkeypatch.setattr(FakeClock, "sleep", slept)

    def block() -> None:
        for attempt in layer.attempts():
            with attempt:
                raise ValueError

    def go() -> None:
        with instant():
            try:
                block()
            except (ValueError, KeyboardInterrupt):
                pass

    assert garbage(go) == 0


@pytest.mark.req("C-4")
def test_an_async_block_leaves_no_reference_cycle() -> None:
    async def block() -> None:
        async for attempt in retry(ZERO, on=ValueError).attempts():
            with attempt:
                raise ValueError

    async def go() -> None:
        try:
            await block()
        except ValueError:
            pass

    assert asyncio.run(agarbage(go)) == 0
