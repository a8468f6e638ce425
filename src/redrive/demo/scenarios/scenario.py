"""A scripted scenario, and the display that shows its progress on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

BLOCK = "█"
INDENT = (0, 0, 0, 2)
TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.02

Figures: TypeAlias = Mapping[str, float]
"""Measurements by name. Requests are counted by the server."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scripted scenario."""

    name: str
    """Key of its figures in the JSON output."""
    title: str
    run: Callable[[Display], Figures]
    summarize: Callable[[Figures], str]
    """Returns the figures in one line, for the summary table."""
    docs_page: str
    """The page that explains the feature."""


class Display:
    """Lines and bars of the running scenario.

    A terminal is redrawn live. Other outputs get plain lines. Without a console, nothing is
    printed. Threads may share one.
    """

    def __init__(self, console: Console | None) -> None:
        self.console = console
        self._lock = Lock()
        self._lines: list[Text] = []
        self._bars: dict[str, Callable[[], int]] = {}

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        """Show the lines and bars of the block under a title."""
        self._lines, self._bars = [], {}
        if self.console is None:
            yield
            return
        self.console.print(Text(title, style="bold"))
        if self.console.is_terminal:
            with Live(
                get_renderable=self._render, console=self.console, refresh_per_second=12
            ) as live:
                yield
                live.refresh()
        else:
            yield
            if self._bars:
                self.console.print(Padding(self._chart(), INDENT, expand=False))
        self.console.print()

    def line(self, text: str, style: str = "") -> None:
        """Add a line."""
        line = Text(text, style=style)
        with self._lock:
            self._lines.append(line)
        if self.console is not None and not self.console.is_terminal:
            self.console.print(Padding(line, INDENT, expand=False))

    def bar(self, label: str, count: Callable[[], int]) -> None:
        """Add a bar that grows with a count."""
        with self._lock:
            self._bars[label] = count

    def table(self, table: Table) -> None:
        """Print a table below all sections."""
        if self.console is not None:
            self.console.print(table)

    def _render(self) -> RenderableType:
        with self._lock:
            parts: list[RenderableType] = [*self._lines]
        if self._bars:
            parts.append(self._chart())
        return Padding(Group(*parts), INDENT, expand=False)

    def _chart(self) -> Table:
        assert self.console is not None
        with self._lock:
            counts = {label: count() for label, count in self._bars.items()}
        label_width = max(len(label) for label in counts)
        bar_width = max(10, min(60, self.console.width - label_width - 12))
        highest = max(*counts.values(), 1)
        chart = Table.grid(padding=(0, 2, 0, 0))
        for position, (label, count) in enumerate(counts.items()):
            length = max(round(count / highest * bar_width), 1 if count else 0)
            bar = Text(BLOCK * length, style="red" if position == 0 else "green")
            chart.add_row(label, Text(str(count), style="bold", justify="right"), bar)
        return chart


def wait_until(is_reached: Callable[[], object], subject: str) -> None:
    """Poll a condition. RuntimeError: it was not reached in time."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_reached():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{subject}: not finished within {TIMEOUT_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
