"""FakeClock: nobody sleeps; time is what was slept."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from ..core.context import SIMULATION, Simulation, simulated
from ..core.seconds import Seconds, seconds


class FakeClock:
    """A clock without waiting: sleeping moves it, and so does `advance`. Any thread may read it."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        """Every wait, in order."""
        self._began = float(int(time.monotonic()))  # whole, so that `remaining == 2.5` holds in every run, or in none
        self._passed = 0.0
        self._start = datetime.now(timezone.utc)

    def monotonic(self) -> float:
        """Return seconds that only grow.

        Returns:
            Seconds.
        """
        return self._began + self._passed

    def now(self) -> datetime:
        """Return the time of this clock.

        Returns:
            The time, in UTC.
        """
        return self._start + timedelta(seconds=self._passed)

    def advance(self, by: Seconds, /) -> None:
        """Move the clock forward.

        Args:
            by: Seconds, or a `timedelta`.
        """
        self._passed += seconds("advance", by)

    def sleep(self, wait: float, /) -> None:
        """Move the clock, and note the wait.

        Args:
            wait: Seconds.
        """
        if wait > 0:
            self.slept.append(wait)
            self._passed += wait

    async def asleep(self, wait: float, /) -> None:
        """Move the clock, and note the wait, in async code. Other tasks get their turn.

        Args:
            wait: Seconds.
        """
        import asyncio  # noqa: PLC0415  # plain tests need none

        self.sleep(wait)
        await asyncio.sleep(0)


@contextmanager
def instant(*, jitter: float = 0.0, seed: int | None = None) -> Iterator[FakeClock]:
    """Do not wait inside a block: waits are noted and the clock is moved.

    It applies to this context only: the code of the block and the tasks that it starts. Start your
    own threads with `contextvars.copy_context().run` to include them.

    Args:
        jitter: Random number of every wait, from 0 to 1.
        seed: Draw random numbers from this seed instead.

    Yields:
        The clock. Its `slept` lists all waits.
    """
    if not 0 <= jitter <= 1:
        raise ValueError(f"jitter is the draw of every wait, from 0 to 1: {jitter!r}")
    clock = FakeClock()
    draw = (lambda: jitter) if seed is None else random.Random(seed).random
    around = SIMULATION.get()
    with simulated(Simulation(clock, draw, None if around is None else around.faults)):
        yield clock
