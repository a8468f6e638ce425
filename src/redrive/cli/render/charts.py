"""Spark: a row of small bars, for how much there was, hour by hour."""

from __future__ import annotations

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
NONE = "·"


def spark(values: Sequence[int], /) -> str:
    """One sign for each; the highest bar is the most there was, and nothing at all is a dot."""
    most = max(values, default=0)
    return "".join(NONE if not value else BARS[max(0, -(-value * len(BARS) // most) - 1)] for value in values)


def twos(values: Sequence[int], /) -> list[int]:
    """Two by two, where there is half the room; the last of them are the last."""
    odd = len(values) % 2
    return [*values[:odd], *(values[at] + values[at + 1] for at in range(odd, len(values) - 1, 2))]
