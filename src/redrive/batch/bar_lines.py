"""BarLines: how the progress of a batch is drawn with Rich. Two lines for each batch: its bar, and its state in words."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text


class Elapsed(ProgressColumn):
    """The time since the batch began. Rich's own column stops when a pass has handled all its items."""

    def render(self, task: Task) -> Text:
        """Show hours, minutes and seconds."""
        return Text(str(timedelta(seconds=int(task.elapsed or 0))), style="progress.elapsed")


class BarLines(Progress):
    """Progress with the state of each task on a line of its own, so that a narrow terminal does not cut it."""

    def __init__(self, *, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Elapsed())
        super().__init__(*columns, console=console)

    def say(
        self, task: TaskID, said: str, /, *, wait: float | None = None, total: float | None = None,
        completed: float | None = None,
    ) -> None:  # fmt: skip
        """Set the state in words. `{wait}` in it is replaced by the rest of the wait, which counts down."""
        until = None if wait is None else self.get_time() + wait
        self.update(task, total=total, completed=completed, said=said, until=until)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Draw a bar and its state for each task."""
        for task in self.tasks:
            yield Group(self.make_tasks_table([task]), self._state(task))

    def _state(self, task: Task) -> Text:
        said, until = task.fields["said"], task.fields["until"]
        if until is not None:
            said = said.replace("{wait}", _seconds(max(0.0, until - self.get_time())))
        # Set here, as the console may be one that does not wrap.
        return Text(f"  {said}", no_wrap=False, overflow="fold")


def _seconds(left: float) -> str:
    return f"{left:.1f} s" if left < 10 else f"{left:.0f} s"
