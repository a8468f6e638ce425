"""FakeClock: a clock for tests. Sleeping moves it at once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from ..core.context import SIMULATION, Simulation, simulate
from ..core.seconds import Seconds, seconds


class FakeClock:
    """A clock without waiting: sleeping moves it, and so does `advance`. Any thread may read it.

    Args:
        at: Time at the start, with a time zone. None: now.
    """

    def __init__(self, at: datetime | None = None) -> None:
        if at is not None and at.tzinfo is None:
            raise ValueError(f"at={at!r}: pass a datetime with a time zone, such as timezone.utc")
        self.slept: list[float] = []
        """Every wait, in order."""
        # A whole number: rounding errors of the clock are then equal in every run.
        self._started_monotonic = float(int(time.monotonic()))
        self._started_at = at or datetime.now(timezone.utc)
        self._passed = 0.0

    def monotonic(self) -> float:
        """Return seconds that only grow.

        Returns:
            Seconds.
        """
        return self._started_monotonic + self._passed

    def now(self) -> datetime:
        """Return the time of this clock.

        Returns:
            The time, in UTC.
        """
        return self._started_at + timedelta(seconds=self._passed)

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
        import asyncio  # noqa: PLC0415  # 45 ms that sync tests must not pay

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
    outer = SIMULATION.get()
    with simulate(Simulation(clock, draw, None if outer is None else outer.faults)):
        yield clock
