"""Breaker: stops calling what fails most of the time."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal, TypeAlias

from .lock import LOCK
from .named import Named
from .seconds import Seconds, number, positive, whole

State: TypeAlias = Literal["closed", "open", "probing"]
SLOTS = 10
FEWEST = 20
"""Calls over which the latest failures are averaged, at least."""


class Breaker:
    """A circuit breaker: it opens at a failure rate and closes after a successful probe.

    While it is open, calls fail with `BreakerOpen`, which is never retried. Only errors that a
    retry might fix count as failures. A response such as "not found" counts as a success.

    Threads and event loops may share one. A forked child continues with its own copy.
    """

    __slots__ = ("_last", "_latest_rate", "_opened", "_probed", "_slots", "failure_rate", "min_calls", "open_for", "window")

    def __init__(self, *, failure_rate: float = 0.5, window: Seconds = 30, min_calls: int = 20, open_for: Seconds = 10) -> None:
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
        self.min_calls = whole("min_calls", min_calls)
        self.open_for = positive("open_for", open_for)
        self._slots: deque[list[int]] = deque()  # [slot, calls, failures]: a slot is a tenth of the window
        self._latest_rate = 0.0  # exponential moving average over the latest calls
        self._last = 0.0  # when it was changed
        self._opened: float | None = None
        self._probed: float | None = None

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
        """`"closed"` (calls pass), `"open"` (calls fail), or `"probing"` (one call tests the service)."""
        if self._opened is None:
            return "closed"
        return "open" if self._probed is None else "probing"

    def allow(self, now: float, /) -> float:
        """0 lets the call through; else the seconds until a probe may be."""
        if self._opened is None:
            return 0.0
        with LOCK:
            if self._opened is None:
                return 0.0
            wait = self.closed_for(now)
            if not wait:
                self._probed = now
            return wait

    def closed_for(self, now: float, /) -> float:
        """Seconds until a probe may go; 0 when a call may. Lets nobody through by itself."""
        since = self._opened if self._probed is None else self._probed
        # A probe that never came back must not keep it open for ever, nor may a clock that jumped backwards.
        if since is None or not since <= now < since + self.open_for:
            return 0.0
        return since + self.open_for - now

    def record(self, failed: bool, now: float, /) -> bool:
        """Note how a call ended; True when that opened or closed it."""
        with LOCK:
            if self._opened is not None:
                return self._record_probe(failed, now)
            latest = self._latest(int(now // (self.window / SLOTS)))
            latest[1] += 1
            latest[2] += failed
            self._average(failed, now)
            if not failed or not (self._too_many() or self._latest_rate >= self._far_more):
                return False
            self._opened = now
            self._slots = deque()
            self._latest_rate = 0.0
            return True

    def abandon(self) -> None:
        """The call was cancelled: it says nothing, and another probe may go at once."""
        with LOCK:
            self._probed = None  # where one was out, the time since it opened is over already

    def _latest(self, slot: int) -> list[int]:
        """The slot to count in; those that the window has left are dropped, so that slots are always in order."""
        slots = self._slots
        if slots and slot < slots[-1][0]:
            if slots[-1][0] - slot < SLOTS:  # a thread that read the clock earlier and came later
                return slots[-1]
            self._slots = slots = deque()  # the clock has jumped backwards
        if not slots or slots[-1][0] != slot:
            slots.append([slot, 0, 0])
        while slots[0][0] <= slot - SLOTS:
            slots.popleft()
        return slots[-1]

    @property
    def _far_more(self) -> float:
        """Halfway from the failure rate to all calls."""
        return min((1 + self.failure_rate) / 2, 0.95)

    def _average(self, failed: bool, now: float) -> None:
        """Weigh the latest call in. After a pause as long as the window, earlier calls say nothing."""
        if abs(now - self._last) > self.window:
            self._latest_rate = 0.0
        self._last = now
        self._latest_rate += (failed - self._latest_rate) / max(self.min_calls, FEWEST)

    def _too_many(self) -> bool:
        calls = sum(slot[1] for slot in self._slots)
        failures = sum(slot[2] for slot in self._slots)
        return calls >= self.min_calls and failures / calls >= self.failure_rate  # a quotient, since 0.55 * 20 is above 11

    def _record_probe(self, failed: bool, now: float) -> bool:
        if self._probed is None:
            return False  # a call that was under way when it opened: no news
        self._probed = None
        self._opened = now if failed else None
        return not failed

    def __repr__(self) -> str:
        return f"Breaker({self.state}, failure_rate={self.failure_rate:g}, window={self.window:g})"


_BREAKERS = Named(Breaker)
