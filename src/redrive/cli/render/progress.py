"""Progress bars of long operations: on standard error, only at a terminal, removed at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from ...ops import Sweep
from .output import CONTROL_CHARACTERS

SWEEP_BAR_COLUMNS = 20


@contextmanager
def byte_progress(name: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """Yield a function that advances the bar by a number of bytes."""
    out = Console(stderr=True, highlight=False, emoji=False, markup=False)
    if not out.is_terminal:
        yield lambda _count: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task(CONTROL_CHARACTERS.sub("", name)[-40:], total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def sweep_progress(sweep: Sweep, *, quiet: bool) -> Iterator[Callable[[Sweep], None]]:
    """Yield a function that moves the bar to the state of the sweep."""
    out = Console(stderr=True, highlight=False)
    if quiet or not out.is_terminal or not sys.stderr.isatty():
        yield lambda _sweep: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task(sweep.act, total=sweep.total, completed=sweep.made + sweep.skipped)

        def update(sweep: Sweep) -> None:
            is_waiting = sweep.canary and sweep.made == sweep.canary and sweep.left
            canary = f": waiting for the canary ({sweep.canary})" if is_waiting else ""
            completed = sweep.made + sweep.skipped
            progress.update(task, completed=completed, description=f"{sweep.act}{canary}")

        yield update


def sweep_bar(sweep: Sweep, /) -> Text:
    """Return a bar of one line: done, skipped and not yet processed."""
    return stacked_bar(
        SWEEP_BAR_COLUMNS,
        sweep.total,
        ("━", "green", sweep.made),
        ("━", "yellow", sweep.skipped),
    )


def stacked_bar(width: int, total: int, *parts: tuple[str, str, int]) -> Text:
    """Return a bar with a part for each (sign, style, count). The rest of the total is dim."""
    bar = Text()
    for sign, style, count in parts:
        columns = round(width * count / (total or 1))
        bar += Text(sign * min(columns, width - len(bar)), style)
    return bar + Text("╌" * (width - len(bar)), "dim")
