"""Breaker: stops calls to a service that fails most of the time."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal, TypeAlias

from .lock import LOCK, SharedByName
from .seconds import Seconds, number, positive, whole_number

State: TypeAlias = Literal["closed", "open", "probing"]
SLOTS = 10
"""Parts into which the window is divided."""
MIN_AVERAGED_CALLS = 20
"""Calls over which the rate of the latest failures is averaged, at least."""


class Breaker:
    """A circuit breaker: it opens at a failure rate and closes after a successful probe.

    While it is open, calls fail with `BreakerOpen`, which is never retried. Only errors that a
    retry might fix count as failures. A response such as "not found" counts as a success.

    Threads and event loops may share one. A forked child continues with its own copy.
    """

    __slots__ = (
        "_averaged_at",
        "_latest_rate",
        "_opened_at",
        "_probed_at",
        "_slots",
        "failure_rate",
        "min_calls",
        "open_for",
        "window",
    )

    def __init__(
        self,
        *,
        failure_rate: float = 0.5,
        window: Seconds = 30,
        min_calls: int = 20,
        open_for: Seconds = 10,
    ) -> None:
        """Create a closed breaker.

        It also opens when the latest calls fail far more often than `failure_rate`, however many
        succeeded earlier in the window. With the defaults, an outage of all calls opens it within
        28 calls.

        Args:
            failure_rate: Part of failed calls at which it opens, above 0 and up to 1.
            window: Seconds over which calls are counted.
            min_calls: Minimum number of calls in the window before it can open.
            open_for: Seconds for which calls fail. Then one probe is let through.

        Raises:
            ValueError: A number is out of range.
        """
        self.failure_rate = number("failure_rate", failure_rate)
        if not 0 < self.failure_rate <= 1:
            raise ValueError(f"failure_rate must be above 0 and at most 1: {failure_rate!r}")
        self.window = positive("window", window)
        self.min_calls = whole_number("min_calls", min_calls)
        self.open_for = positive("open_for", open_for)
        self._slots: deque[list[int]] = deque()  # [number of the slot, calls, failures]
        self._latest_rate = 0.0  # exponential moving average over the latest calls
        self._averaged_at = 0.0
        self._opened_at: float | None = None
        self._probed_at: float | None = None

    @classmethod
    def named(cls, name: str, /, **numbers: Any) -> Breaker:
        """Return the breaker of this name in this process, and create it at first use.

        Args:
            name: Name of the breaker.
            numbers: Options as of `Breaker(...)`.

        Returns:
            The shared breaker.

        Raises:
            ValueError: The breaker exists with other numbers.
        """
        return _BREAKERS.get(name, numbers)

    @property
    def state(self) -> State:
        """`"closed"` (calls pass), `"open"` (calls fail), or `"probing"` (one call is a test)."""
        if self._opened_at is None:
            return "closed"
        return "open" if self._probed_at is None else "probing"

    def allow(self, now: float, /) -> float:
        """Return 0 if the call may start, or the seconds until a probe may."""
        if self._opened_at is None:
            return 0.0
        with LOCK:
            if self._opened_at is None:
                return 0.0
            wait = self.closed_for(now)
            if not wait:
                self._probed_at = now
            return wait

    def closed_for(self, now: float, /) -> float:
        """Return the seconds until a call may start, 0 if it may. Does not start a probe."""
        since = self._opened_at if self._probed_at is None else self._probed_at
        # A probe that never ended must not keep it open, nor a clock that jumped backwards.
        if since is None or not since <= now < since + self.open_for:
            return 0.0
        return since + self.open_for - now

    def record(self, failed: bool, now: float, /) -> bool:
        """Record how a call ended. Return True if that opened or closed the breaker."""
        with LOCK:
            if self._opened_at is not None:
                return self._record_probe(failed, now)
            slot = self._current_slot(int(now // (self.window / SLOTS)))
            slot[1] += 1
            slot[2] += failed
            self._update_average(failed, now)
            if not failed:
                return False
            if not self._is_rate_exceeded() and self._latest_rate < self._max_latest_rate:
                return False
            self._opened_at = now
            self._slots = deque()
            self._latest_rate = 0.0
            return True

    def abandon(self) -> None:
        """Ignore a call that was cancelled. If it was a probe, another may start at once."""
        with LOCK:
            self._probed_at = None

    def _current_slot(self, slot: int) -> list[int]:
        """Return the slot of this number, and drop those that have left the window."""
        slots = self._slots
        if slots and slot < slots[-1][0]:
            if slots[-1][0] - slot < SLOTS:  # another thread read the clock later, but came first
                return slots[-1]
            self._slots = slots = deque()  # the clock has jumped backwards
        if not slots or slots[-1][0] != slot:
            slots.append([slot, 0, 0])
        while slots[0][0] <= slot - SLOTS:
            slots.popleft()
        return slots[-1]

    @property
    def _max_latest_rate(self) -> float:
        """The rate of the latest failures that opens it: halfway from the failure rate to 1."""
        return min((1 + self.failure_rate) / 2, 0.95)

    def _update_average(self, failed: bool, now: float) -> None:
        """Add a call to the average. After a pause as long as the window, it starts anew."""
        if abs(now - self._averaged_at) > self.window:
            self._latest_rate = 0.0
        self._averaged_at = now
        self._latest_rate += (failed - self._latest_rate) / max(self.min_calls, MIN_AVERAGED_CALLS)

    def _is_rate_exceeded(self) -> bool:
        calls = sum(slot[1] for slot in self._slots)
        failures = sum(slot[2] for slot in self._slots)
        # A quotient, because 0.55 * 20 is above 11 in floating point.
        return calls >= self.min_calls and failures / calls >= self.failure_rate

    def _record_probe(self, failed: bool, now: float) -> bool:
        if self._probed_at is None:
            return False  # a call that was running when it opened
        self._probed_at = None
        self._opened_at = now if failed else None
        return not failed

    def __repr__(self) -> str:
        return f"Breaker({self.state}, failure_rate={self.failure_rate:g}, window={self.window:g})"


_BREAKERS = SharedByName(Breaker)
