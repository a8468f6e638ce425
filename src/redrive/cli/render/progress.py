"""Progress of long operations: bars, and reports that are followed until they end.

Bars are on standard error, only at a terminal, and removed at the end. A report is redrawn at a
terminal. Otherwise it is a line for each change.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from ...core.context import clock_around
from ...ops import Sweep
from ...ops.render import document, utc
from .output import CONTROL_CHARACTERS, Sanitized, console, print_json_line, show

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
def time_progress(
    name: str, total: float, *, quiet: bool
) -> Iterator[Callable[[str, float], None]]:
    """Yield a function that takes what is simulated, and advances the bar by simulated seconds."""
    out = Console(stderr=True, highlight=False, emoji=False, markup=False)
    if quiet or not out.is_terminal:
        yield lambda _description, _seconds: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task(name, total=total)

        def advance(description: str, seconds: float) -> None:
            text = CONTROL_CHARACTERS.sub("", description)[:40]
            progress.update(task, advance=seconds, description=text)

        yield advance


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
        SWEEP_BAR_COLUMNS, sweep.total, ("━", "green", sweep.made), ("━", "yellow", sweep.skipped)
    )


def stacked_bar(width: int, total: int, *parts: tuple[str, str, int]) -> Text:
    """Return a bar with a part for each (sign, style, count). The rest of the total is dim."""
    bar = Text()
    for sign, style, count in parts:
        columns = round(width * count / (total or 1))
        bar += Text(sign * min(columns, width - len(bar)), style)
    return bar + Text("╌" * (width - len(bar)), "dim")


# --- Reports that are followed

READ_SECONDS = 1.0
"""Seconds between two reads."""
TIME_DEPENDENT_FIELDS = ("now", "left")
"""Fields that change with the time although nothing happens."""


class TimedReport(Protocol):
    """A report with the time at which it was read."""

    @property
    def now(self) -> datetime:
        """The time by the database's clock."""


R = TypeVar("R", bound=TimedReport)


@dataclass(frozen=True)  # Slots and Generic do not go together before Python 3.12.
class Follower(Generic[R]):
    """How a report is read and printed while it is followed.

    Args:
        read: Reads the next report. None: stop following.
        is_running: Whether a report may still change.
        draw: The report for a terminal of this width.
        line: The report in one line, for a pipe or a file.
    """

    read: Callable[[], R | None]
    is_running: Callable[[R], bool]
    draw: Callable[[R, int], RenderableType]
    line: Callable[[R], str]

    def follow(self, report: R, *, as_json: bool) -> tuple[R, bool]:
        """Read a report every second until it is not running.

        Returns:
            The last report, and whether Ctrl+C ended the following.
        """
        screen = Console(stderr=True, highlight=False, emoji=False, markup=False)
        is_drawn = screen.is_terminal and console().file.isatty() and not as_json
        clock = clock_around()

        def picture() -> Sanitized:
            return Sanitized(self.draw(report, screen.width))

        last = "" if is_drawn else self._print_change(report, as_json, "")
        drawing = (
            Live(picture(), console=screen, transient=True, auto_refresh=False)
            if is_drawn
            else nullcontext()
        )
        try:
            with drawing as live:
                while self.is_running(report):
                    clock.sleep(READ_SECONDS)
                    latest = self.read()
                    if latest is None:
                        break
                    report = latest
                    if live is not None:
                        live.update(picture(), refresh=True)
                    else:
                        last = self._print_change(report, as_json, last)
        except KeyboardInterrupt:
            return report, True
        return report, False

    def _print_change(self, report: R, as_json: bool, last: str) -> str:
        """Print the report in one line if it changed. Return the line without its time."""
        line = self.line(report)
        data = document(report)
        stable_fields = {
            name: value for name, value in data.items() if name not in TIME_DEPENDENT_FIELDS
        }
        change = str(stable_fields) if as_json else line
        if change == last:
            return last
        if as_json:
            print_json_line(data)
        else:
            show(f"{utc(report.now)} UTC  {line}")
        sys.stdout.flush()
        return change
