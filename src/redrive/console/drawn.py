"""Drawn: counts over time as bars, in one path: small to send, and to scale."""

from __future__ import annotations

from collections.abc import Sequence

HEIGHT = 20.0
STEP = 4.0
"""Each bar's width, with its gap."""


def bars(values: Sequence[float], /) -> str:
    """The `d` of a path in a box of 4 for each value by 20: none is no bar, and one is a bar that can be seen."""
    top = max(values, default=0)
    drawn = []
    for at, value in enumerate(values):
        if value:
            height = max(2.0, HEIGHT * value / top)
            drawn.append(f"M{at * STEP:g} {HEIGHT:g}v-{height:.3g}h3v{height:.3g}z")
    return "".join(drawn)
