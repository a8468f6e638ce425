"""Follow a report until it ends: redrawn at a terminal, otherwise a line for each change."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live

from ...core.context import clock_around
from ...ops.render import document, utc
from .output import Sanitized, console, print_json_line, show

READ_SECONDS = 1.0
"""Seconds between two reads."""
PASSING_FIELDS = ("now", "left")
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
        read: Reads the next report. None ends the following.
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
        lasting = {name: value for name, value in data.items() if name not in PASSING_FIELDS}
        change = str(lasting) if as_json else line
        if change == last:
            return last
        if as_json:
            print_json_line(data)
        else:
            show(f"{utc(report.now)} UTC  {line}")
        sys.stdout.flush()
        return change
