"""Bar: how far a long copy has come, where somebody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from .output import COMMANDS


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """A function that is told how many bytes have just been moved. On standard error, and only on a terminal; gone at the end."""
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
        task = progress.add_task(COMMANDS.sub("", what)[-40:], total=total)
        yield lambda count: progress.advance(task, count)
