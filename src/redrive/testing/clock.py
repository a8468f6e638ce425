"""FakeClock: nobody sleeps; time is what was slept."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from ..core.context import STAGE, Stage, staged
from ..core.seconds import Seconds, seconds


class FakeClock:
    """Nobody sleeps; time is what was slept, and what you add with `advance`. Any thread may read it while others sleep."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        """Every wait, in order."""
        self._began = float(int(time.monotonic()))  # whole, so that `remaining == 2.5` holds in every run, or in none
        self._passed = 0.0
        self._start = datetime.now(timezone.utc)

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return self._began + self._passed

    def now(self) -> datetime:
        """The moment, aware, in UTC."""
        return self._start + timedelta(seconds=self._passed)

    def advance(self, by: Seconds, /) -> None:
        """Let time pass."""
        self._passed += seconds("advance", by)

    def sleep(self, wait: float, /) -> None:
        """Let time pass, and remember it as a wait."""
        if wait > 0:
            self.slept.append(wait)
            self._passed += wait

    async def asleep(self, wait: float, /) -> None:
        """The same for async code; other tasks get their turn."""
        import asyncio  # noqa: PLC0415  # plain tests need none

        self.sleep(wait)
        await asyncio.sleep(0)


@contextmanager
def instant(*, jitter: float = 0.0, seed: int | None = None) -> Iterator[FakeClock]:
    """No waiting inside this block: waits are noted, not slept.

    In this context only: the code of the block and the tasks it starts. A thread of your own has its own context; start it with
    `contextvars.copy_context().run` to take it in.
    jitter: the draw of every wait, from 0 to 1. seed: real draws instead, the same ones every time.
    """
    if not 0 <= jitter <= 1:
        raise ValueError(f"jitter is the draw of every wait, from 0 to 1: {jitter!r}")
    clock = FakeClock()
    draw = (lambda: jitter) if seed is None else random.Random(seed).random
    around = STAGE.get()
    with staged(Stage(clock, draw, None if around is None else around.faults)):
        yield clock
