"""Stage: where scenes are shown. Live on a terminal, plain lines elsewhere, nothing where only figures are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

BLOCK = "█"


class Stage:
    """Lines and bars of the scene that is on. Any thread may add to it."""

    def __init__(self, console: Console | None) -> None:
        self.console = console
        self._lock = Lock()
        self._lines: list[Text] = []
        self._bars: dict[str, Callable[[], int]] = {}

    @contextmanager
    def scene(self, title: str) -> Iterator[None]:
        """Show what happens inside, under this title."""
        self._lines, self._bars = [], {}
        if self.console is None:
            yield
            return
        self.console.print(Text(title, style="bold"))
        if self.console.is_terminal:
            with Live(get_renderable=self._picture, console=self.console, refresh_per_second=12) as live:
                yield
                live.refresh()
        else:
            yield
            if self._bars:
                self.console.print(Padding(self._chart(), (0, 0, 0, 2), expand=False))
        self.console.print()

    def line(self, text: str, style: str = "") -> None:
        """One line more."""
        line = Text(text, style=style)
        with self._lock:
            self._lines.append(line)
        if self.console is not None and not self.console.is_terminal:
            self.console.print(Padding(line, (0, 0, 0, 2), expand=False))

    def bar(self, label: str, count: Callable[[], int]) -> None:
        """A bar that grows with a count."""
        with self._lock:
            self._bars[label] = count

    def table(self, table: Table) -> None:
        """A table, when all is over."""
        if self.console is not None:
            self.console.print(table)

    def _picture(self) -> RenderableType:
        with self._lock:
            parts: list[RenderableType] = [*self._lines]
        if self._bars:
            parts.append(self._chart())
        return Padding(Group(*parts), (0, 0, 0, 2), expand=False)

    def _chart(self) -> Table:
        assert self.console is not None
        with self._lock:
            counts = {label: count() for label, count in self._bars.items()}
        labels = max(len(label) for label in counts)
        room = max(10, min(60, self.console.width - labels - 12))
        most = max(*counts.values(), 1)
        chart = Table.grid(padding=(0, 2, 0, 0))
        for place, (label, count) in enumerate(counts.items()):
            bar = Text(BLOCK * max(round(count / most * room), 1 if count else 0), style="red" if place == 0 else "green")
            chart.add_row(label, Text(str(count), style="bold", justify="right"), bar)
        return chart
