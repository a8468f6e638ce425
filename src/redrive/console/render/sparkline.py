"""Drawn: counts over time as bars, in one path: small to send, and to scale."""

from __future__ import annotations

from collections.abc import Sequence

HEIGHT = 20
STEP = 4
"""Each bar's width, with its gap."""


def bars(values: Sequence[float], /) -> str:
    """The `d` of a path in a box of 4 for each value by 20: none is no bar, and one is a bar that can be seen."""
    scale = HEIGHT / (max(values, default=0) or 1)
    drawn = []
    for at, value in enumerate(values):
        if value:
            height = max(2, round(scale * value))  # whole: a page has hundreds of bars
            drawn.append(f"M{at * STEP} {HEIGHT}v-{height}h3v{height}z")
    return "".join(drawn)
