"""Timeline: a small picture of attempts and the waits between them, with a scale beneath."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from rich.text import Text

from ...core.text import duration_unit

TICK, MISSED, WAIT = "┃", "✗", "─"


def timeline(waits: Sequence[float], limit: float | None, width: int, *, more: bool = False) -> list[Text]:
    """Two lines: attempts as ticks with the waits as bars between them, and when each attempt is made.

    limit: attempts from here on are not made. more: there are more attempts than these waits tell.
    """
    times = [0.0, *accumulate(waits)]
    columns = _columns(times, width - 2 * more)
    line = Text()
    for place, column in enumerate(columns):
        missed = limit is not None and times[place] >= limit
        line.append(WAIT * (column - len(line)), style="red" if missed else "blue")
        line.append(MISSED if missed else TICK, style="red" if missed else "bold green")
    if more:
        line.append(" …")
    return [line, _scale(times, columns, width)]


def _columns(times: Sequence[float], width: int) -> list[int]:
    """Where each tick stands: to scale, but never two on one place while there is room."""
    last = len(times) - 1
    gap = 2 if 2 * last < width else 1
    if gap * last >= width:  # more ticks than places: those that share one are drawn once
        return sorted({round(place * (width - 1) / last) for place in range(len(times))})
    whole = times[-1] or 1.0
    columns = [round(time / whole * (width - 1)) for time in times]
    for place in range(1, last + 1):
        columns[place] = max(columns[place], columns[place - 1] + gap)
    over = width - 1
    for place in range(last, -1, -1):
        columns[place] = min(columns[place], over)
        over = columns[place] - gap
    return columns


def _scale(times: Sequence[float], columns: Sequence[int], width: int) -> Text:
    unit, name = duration_unit(times[-1])
    if len(columns) < 2 or times[-1] == 0:
        return Text("0 s", style="dim")
    end = f"{times[-1] / unit:.3g} {name}"
    start = min(max(columns[-1] - len(end) + 1, 2), width - len(end))
    scale = ""
    for column, time in zip(columns[:-1], times[:-1], strict=False):
        said = f"{time / unit:.3g}"
        if (column == 0 or column > len(scale)) and column + len(said) < start:
            scale = scale.ljust(column) + said
    return Text(scale.ljust(start) + end, style="dim")
