"""Budget: a limit on retries that many calls share."""

from __future__ import annotations

import math
from typing import Self

from .fault import Kind
from .lock import GIL, LOCK, SharedByName
from .seconds import number


class Budget:
    """A limit on retries that many calls share: a token bucket.

    Successful calls add tokens and retries take them. Occasional faults are retried freely. When
    most calls fail, retries stop, so that they do not multiply the load.

    Threads and event loops may share one. A forked child continues with its own copy.
    """

    __slots__ = (
        "_denied",
        "_granted_at",
        "_tokens",
        "below_capacity",
        "capacity",
        "cost",
        "floor",
        "refill",
        "throttled_cost",
    )

    def __init__(
        self,
        *,
        capacity: float = 500,
        cost: float = 14,
        throttled_cost: float = 5,
        refill: float = 1,
        floor: float = 1.0,
    ) -> None:
        """Create a full bucket.

        Args:
            capacity: Tokens at the start, and the maximum.
            cost: Tokens that a retry takes after a transient fault.
            throttled_cost: Tokens that a retry takes after the server asked to slow down.
            refill: Tokens that a success adds. A retry that succeeds adds its whole cost.
            floor: Retries per second that are allowed even if the bucket is empty.

        Raises:
            ValueError: A number is negative.
        """
        self.capacity = number("capacity", capacity)
        self.cost = number("cost", cost)
        self.throttled_cost = number("throttled_cost", throttled_cost)
        self.refill = number("refill", refill)
        self.floor = number("floor", floor)
        self._tokens = self.capacity
        self.below_capacity = False
        """Whether a success has tokens to add. Calls that succeed at once read only this."""
        self._granted_at = -math.inf
        self._denied = 0

    @classmethod
    def named(cls, name: str, /, **numbers: float) -> Budget:
        """Return the budget of this name in this process, and create it at first use.

        Args:
            name: Name of the budget.
            numbers: Options as of `Budget(...)`.

        Returns:
            The shared budget.

        Raises:
            ValueError: The budget exists with other numbers.
        """
        return _BUDGETS.get(name, numbers)

    @classmethod
    def unlimited(cls) -> Self:
        """Return a budget that never refuses a retry.

        Returns:
            A new budget.
        """
        budget = cls()
        budget.capacity = budget._tokens = math.inf
        return budget

    @property
    def left(self) -> float:
        """Tokens in the bucket."""
        return self._tokens

    @property
    def denied(self) -> int:
        """Number of retries that the budget has refused."""
        return self._denied

    def spend(self, kind: Kind, /) -> float | None:
        """Pay for one retry after a fault of this kind.

        Returns:
            The tokens paid, or None if there are not enough.
        """
        cost = self.throttled_cost if kind == "throttled" else self.cost
        if GIL:  # no call between the comparison and the write, so both are one atomic step
            if self._tokens >= cost:
                self._tokens -= cost
                self.below_capacity = self._tokens < self.capacity
                return cost
            return None
        with LOCK:
            if self._tokens >= cost:
                self._tokens -= cost
                self.below_capacity = self._tokens < self.capacity
                return cost
        return None

    def allow_by_floor(self, now: float, /) -> bool:
        """Return whether the floor allows this retry although the bucket is empty."""
        with LOCK:
            # If the clock jumped backwards, the floor must not stay shut until it has caught up.
            if self.floor and not self._granted_at <= now < self._granted_at + 1 / self.floor:
                self._granted_at = now
                return True
            self._denied += 1
        return False

    def refund(self, tokens: float | None = None, /) -> None:
        """Add tokens after a success: the price of its retry, or `refill` if it paid none."""
        if not tokens:
            tokens = self.refill
        if GIL:  # no call in between, so this is one atomic step
            filled = self._tokens + tokens
            self._tokens = filled if filled < self.capacity else self.capacity
            self.below_capacity = self._tokens < self.capacity
        else:
            with LOCK:
                self._tokens = min(self._tokens + tokens, self.capacity)
                self.below_capacity = self._tokens < self.capacity

    def __repr__(self) -> str:
        return f"Budget(left={self._tokens:g}, capacity={self.capacity:g})"


_BUDGETS = SharedByName(Budget)
UNLIMITED = Budget.unlimited()
