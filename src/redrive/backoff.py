"""Waits that the five numbers of a policy cannot express.

A backoff replaces the three backoff fields of a policy. It is a function of the failed attempt
(from 1) and a random number from 0 to 1 that returns seconds. The ones made here are immutable.
Threads, event loops and forked children may share one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from .core.policy import exponential_wait
from .core.seconds import Seconds, number, positive, seconds

__all__ = ["Backoff", "doubling", "fixed", "full_jitter", "powers", "steps"]


class Backoff(Protocol):
    """A function of the failed attempt and a random number that returns seconds to wait."""

    def __call__(self, attempt: int, draw: float, /) -> float:
        """Return the wait after a failed attempt.

        Args:
            attempt: Number of the failed attempt, from 1.
            draw: A random number from 0 up to, not including, 1.

        Returns:
            Seconds.
        """


@dataclass(frozen=True, slots=True)
class _Steps:
    waits: tuple[float, ...]
    jitter: float

    def __call__(self, attempt: int, draw: float, /) -> float:
        return _spread(self.waits[min(attempt, len(self.waits)) - 1], self.jitter, draw)


@dataclass(frozen=True, slots=True)
class _Powers:
    base: float
    cap: float
    jitter: float

    def __call__(self, attempt: int, draw: float, /) -> float:
        try:
            wait = self.base**attempt
        except OverflowError:
            wait = math.inf
        return _spread(min(wait, self.cap), self.jitter, draw)


@dataclass(frozen=True, slots=True)
class _Doubling:
    base: float
    cap: float
    jitter: float

    def __call__(self, attempt: int, draw: float, /) -> float:
        return min(self.cap, exponential_wait(self.base, attempt)) * (1 + self.jitter * draw)


@dataclass(frozen=True, slots=True)
class _FullJitter:
    base: float
    cap: float

    def __call__(self, attempt: int, draw: float, /) -> float:
        return min(self.cap, exponential_wait(self.base, attempt)) * draw


def steps(*waits: Seconds, jitter: float = 0.1) -> Backoff:
    """Wait these times in turn, and repeat the last one.

    Args:
        waits: Seconds or `timedelta`.
        jitter: Part of the wait by which it varies: 0.1 means ±10 %.

    Returns:
        A backoff for `retry(backoff=...)`.

    Raises:
        ValueError: No wait is passed.
    """
    if not waits:
        raise ValueError("steps needs at least one wait, for example steps(300, 1800, 7200)")
    return _Steps(tuple(seconds("a wait", wait) for wait in waits), _share(jitter))


def fixed(wait: Seconds, /, *, jitter: float = 0.0) -> Backoff:
    """Wait the same time after every attempt.

    Args:
        wait: Seconds or `timedelta`.
        jitter: Part of the wait by which it varies.

    Returns:
        A backoff for `retry(backoff=...)`.
    """
    return _Steps((seconds("wait", wait),), _share(jitter))


def powers(base: float, /, *, cap: Seconds, jitter: float = 0.0) -> Backoff:
    """Wait `min(base ** n, cap)` seconds after failed attempt n: 2, 4, 8 with base 2.

    Args:
        base: The base.
        cap: Maximum wait.
        jitter: Part of the wait by which it varies.

    Returns:
        A backoff for `retry(backoff=...)`.
    """
    return _Powers(number("base", base), positive("cap", cap), _share(jitter))


def doubling(base: Seconds, /, *, cap: Seconds, jitter: float = 0.5) -> Backoff:
    """Wait `min(cap, base * 2**(n-1))` seconds, plus a random part of it.

    Args:
        base: First wait.
        cap: Maximum wait, without jitter.
        jitter: Maximum part of the wait that is added: with 0.5, the first wait of 0.1 s is 0.1 to
            0.15 s.

    Returns:
        A backoff for `retry(backoff=...)`.
    """
    return _Doubling(seconds("base", base), seconds("cap", cap), _share(jitter))


def full_jitter(base: Seconds, /, *, cap: Seconds) -> Backoff:
    """Wait a random time from 0 to `min(cap, base * 2**(n-1))` seconds.

    This spreads many clients best.

    Args:
        base: Upper limit of the first wait.
        cap: Upper limit of all waits.

    Returns:
        A backoff for `retry(backoff=...)`.
    """
    return _FullJitter(seconds("base", base), positive("cap", cap))


def _share(jitter: object) -> float:
    share = number("jitter", jitter)
    if share > 1:
        raise ValueError(f"jitter must be a share of the wait, from 0 to 1: {jitter!r}")
    return share


def _spread(wait: float, jitter: float, draw: float) -> float:
    return wait * (1 + jitter * (2 * draw - 1)) if jitter else wait
