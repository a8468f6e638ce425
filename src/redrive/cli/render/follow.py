"""Follow a report until it ends: redrawn at a terminal, and one line for each change elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from typing import Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from ...core.context import clock_around
from ...ops.render import document
from .moments import utc
from .output import Harmless, complain, console, print_line, show

EVERY = 1.0
"""Seconds between two reads."""
PASSING = ("now", "left")
"""Fields that change with the time, although nothing happens."""


class Followed(Protocol):
    """A report of one moment."""

    @property
    def now(self) -> datetime:
        """By the database's clock."""


R = TypeVar("R", bound=Followed)


def follow(
    report: R,
    read: Callable[[], R | None],
    *,
    running: Callable[[R], bool],
    drawn: Callable[[R, int], RenderableType],
    line: Callable[[R], str],
    as_json: bool,
) -> tuple[R, bool]:
    """Read a report every second until it is not running.

    Args:
        report: The first report.
        read: Reads the next one. None ends the watching.
        running: Whether a report may still change.
        drawn: The report for a terminal of this width.
        line: The report in one line, for a pipe or a file.
        as_json: Print JSON lines.

    Returns:
        The last report, and whether Ctrl+C ended the watching.
    """
    screen = Console(stderr=True, highlight=False, emoji=False, markup=False)
    redrawn = screen.is_terminal and console().file.isatty() and not as_json
    clock = clock_around()
    last = "" if redrawn else _print(report, line, as_json, "")
    try:
        with (
            Live(Harmless(drawn(report, screen.width)), console=screen, transient=True, auto_refresh=False)
            if redrawn
            else nullcontext() as live
        ):
            while running(report):
                clock.sleep(EVERY)
                latest = read()
                if latest is None:
                    break
                report = latest
                if live is not None:
                    live.update(Harmless(drawn(report, screen.width)), refresh=True)
                else:
                    last = _print(report, line, as_json, last)
    except KeyboardInterrupt:
        return report, True
    return report, False


def _print(report: R, line: Callable[[R], str], as_json: bool, last: str) -> str:
    """Print the report in one line, unless it is as it was; the line without its time."""
    text = line(report)
    data = document(report)
    change = str({name: value for name, value in data.items() if name not in PASSING}) if as_json else text
    if change == last:
        return last
    if as_json:
        print_line(data)
    else:
        show(console(), Text(f"{utc(report.now)} UTC  {text}"))
    sys.stdout.flush()
    return change


def stopped_watching(name: str, *commands: str) -> None:
    """Say that Ctrl+C ended only the watching. commands: What to do next."""
    complain(f"stopped watching; {name} continues", *commands)
