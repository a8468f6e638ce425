"""A median with its confidence interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median


@dataclass(frozen=True)
class Interval:
    """The median of samples, with a confidence interval of at least 95 % from order statistics."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Interval":
        if not samples:
            raise ValueError("no samples to take a median of")
        ordered = sorted(samples)
        n = len(ordered)
        rank, tail = 0, 0.0
        for r in range(n // 2):  # the largest rank whose two binomial tails stay within 5 %
            tail += comb(n, r) / 2**n
            if tail > 0.025:
                break
            rank = r
        return cls(median(ordered), ordered[rank], ordered[n - 1 - rank])

    @classmethod
    def exactly(cls, count: float) -> "Interval":
        return cls(count, count, count)

    def __str__(self) -> str:
        if self.low == self.high:
            return number(self.median)
        return f"{number(self.median)} ({number(self.low)}–{number(self.high)})"


def number(value: float) -> str:
    """Format with three significant digits and without an exponent."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:.{digits}f}"
