"""Small charts in text: sparklines, and timelines of attempts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from rich.text import Text

from ...core.text import duration_unit

BARS = "▁▂▃▄▅▆▇█"
EMPTY = "·"
TICK, MISSED, WAIT = "┃", "✗", "─"


def sparkline(values: Sequence[int], /) -> str:
    """Return one bar for each value, relative to the highest. Zero is a dot."""
    highest = max(values, default=0)
    return "".join(
        BARS[max(0, -(-value * len(BARS) // highest) - 1)] if value else EMPTY for value in values
    )


def pair_sums(values: Sequence[int], /) -> list[int]:
    """Return the sums of neighbours, for half the width. An odd first value stays alone."""
    odd = len(values) % 2
    pairs = range(odd, len(values) - 1, 2)
    return [*values[:odd], *(values[index] + values[index + 1] for index in pairs)]


def timeline(
    waits: Sequence[float], limit: float | None, width: int, *, has_more: bool = False
) -> list[Text]:
    """Return two lines: attempts as ticks with waits between them, and a scale.

    Args:
        waits: Seconds between the attempts.
        limit: Attempts after this many seconds are not made.
        width: Columns of both lines.
        has_more: Whether there are more attempts than these waits.
    """
    times = [0.0, *accumulate(waits)]
    columns = _tick_columns(times, width - 2 * has_more)
    line = Text()
    for time, column in zip(times, columns, strict=False):
        is_missed = limit is not None and time >= limit
        line.append(WAIT * (column - len(line)), style="red" if is_missed else "blue")
        line.append(MISSED if is_missed else TICK, style="red" if is_missed else "bold green")
    if has_more:
        line.append(" …")
    return [line, _scale(times, columns, width)]


def _tick_columns(times: Sequence[float], width: int) -> list[int]:
    """Return the column of each tick: to scale, but never two in one column if they fit."""
    last = len(times) - 1
    gap = 2 if 2 * last < width else 1
    if gap * last >= width:  # More ticks than columns: ticks of the same column are drawn once.
        return sorted({round(index * (width - 1) / last) for index in range(len(times))})
    total = times[-1] or 1.0
    columns = [round(time / total * (width - 1)) for time in times]
    for index in range(1, last + 1):
        columns[index] = max(columns[index], columns[index - 1] + gap)
    rightmost = width - 1
    for index in range(last, -1, -1):
        columns[index] = min(columns[index], rightmost)
        rightmost = columns[index] - gap
    return columns


def _scale(times: Sequence[float], columns: Sequence[int], width: int) -> Text:
    unit, name = duration_unit(times[-1])
    if len(columns) < 2 or times[-1] == 0:
        return Text("0 s", style="dim")
    end = f"{times[-1] / unit:.3g} {name}"
    end_column = min(max(columns[-1] - len(end) + 1, 2), width - len(end))
    scale = ""
    for column, time in zip(columns[:-1], times[:-1], strict=False):
        label = f"{time / unit:.3g}"
        if (column == 0 or column > len(scale)) and column + len(label) < end_column:
            scale = scale.ljust(column) + label
    return Text(scale.ljust(end_column) + end, style="dim")
