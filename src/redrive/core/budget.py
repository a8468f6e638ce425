"""Budget: an allowance of retries shared by many calls."""

from __future__ import annotations

import math
from typing import Self

from .fault import Kind
from .lock import GIL, LOCK
from .named import Named
from .seconds import number


class Budget:
    """An allowance of retries shared by many calls: a token bucket that successes fill and retries empty.

    In an outage every client's retries multiply the load that keeps it down. A shared budget lets the occasional fault
    be retried freely and turns retries off when most calls fail.

    Threads and event loops may share one; a forked child goes on with its own copy.
    """

    __slots__ = ("_denied", "_granted_at", "_tokens", "capacity", "cost", "floor", "refill", "short", "throttled_cost")

    def __init__(
        self,
        *,
        capacity: float = 500,
        cost: float = 14,
        throttled_cost: float = 5,
        refill: float = 1,
        floor: float = 1.0,
    ) -> None:
        """capacity: tokens at the start and at most.

        cost, throttled_cost: what a retry takes after a transient fault, and after the server asked to slow down.
        refill: what a success gives back (a retry that succeeds gives back its whole cost).
        floor: retries per second that are allowed however empty it is, so that a quiet service is not stuck without any.
        """
        self.capacity = number("capacity", capacity)
        self.cost = number("cost", cost)
        self.throttled_cost = number("throttled_cost", throttled_cost)
        self.refill = number("refill", refill)
        self.floor = number("floor", floor)
        self._tokens = self.capacity
        self.short = False
        """Whether a success has anything to fill up: all that a call which succeeds at once looks at."""
        self._granted_at = -math.inf
        self._denied = 0

    @classmethod
    def named(cls, name: str, /, **numbers: float) -> Budget:
        """The one of this name in this process. Other numbers than the first time: ValueError."""
        return _BUDGETS.get(name, numbers)

    @classmethod
    def unlimited(cls) -> Self:
        """Never spent."""
        budget = cls()
        budget.capacity = budget._tokens = math.inf
        return budget

    @property
    def left(self) -> float:
        """Tokens in the bucket."""
        return self._tokens

    @property
    def denied(self) -> int:
        """How many retries it has refused so far."""
        return self._denied

    def take(self, kind: Kind, /) -> float | None:
        """Pay for one retry after a fault of this kind: what was paid, or None when there is not enough."""
        cost = self.throttled_cost if kind == "throttled" else self.cost
        if GIL:  # no call between the comparison and the write: one step
            if self._tokens >= cost:
                self._tokens -= cost
                self.short = self._tokens < self.capacity
                return cost
            return None
        with LOCK:
            if self._tokens >= cost:
                self._tokens -= cost
                self.short = self._tokens < self.capacity
                return cost
        return None

    def spare(self, now: float, /) -> bool:
        """Whether an empty bucket lets this retry through all the same, as its floor says."""
        with LOCK:
            # A clock that jumped backwards must not shut the floor for as long as it jumped.
            if self.floor and not self._granted_at <= now < self._granted_at + 1 / self.floor:
                self._granted_at = now
                return True
            self._denied += 1
        return False

    def earn(self, tokens: float | None = None, /) -> None:
        """A call succeeded: fill up by what its retry had cost; by `refill` where there was none, or it was a free one."""
        if not tokens:
            tokens = self.refill
        if GIL:  # no call in between: one step
            self._tokens = self._tokens + tokens if self._tokens + tokens < self.capacity else self.capacity
            self.short = self._tokens < self.capacity
        else:
            with LOCK:
                self._tokens = min(self._tokens + tokens, self.capacity)
                self.short = self._tokens < self.capacity

    def __repr__(self) -> str:
        return f"Budget(left={self._tokens:g}, capacity={self.capacity:g})"


_BUDGETS = Named(Budget)
UNLIMITED = Budget.unlimited()
