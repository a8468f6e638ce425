"""The look of progress bars in Rich: two lines for each batch, its bar and its state in words.

It is separate from `progress_bar.py` because Rich is optional.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from rich.console import Console, Group, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text


class ElapsedColumn(ProgressColumn):
    """The time since the batch began.

    Rich's own column stops when a pass has handled all its items.
    """

    def render(self, task: Task) -> Text:
        """Show hours, minutes and seconds."""
        return Text(str(timedelta(seconds=int(task.elapsed or 0))), style="progress.elapsed")


class TwoLineProgress(Progress):
    """Bars with the state on a line of its own, so that a narrow terminal does not cut it."""

    def __init__(self, *, console: Console) -> None:
        description = TextColumn("{task.description}")
        columns = (description, BarColumn(), MofNCompleteColumn(), ElapsedColumn())
        super().__init__(*columns, console=console)

    def set_state(
        self,
        task: TaskID,
        text: str,
        /,
        *,
        wait: float | None = None,
        total: float | None = None,
        completed: float | None = None,
    ) -> None:
        """Set the state in words. `{wait}` in it shows the rest of the wait and counts down."""
        wait_ends = None if wait is None else self.get_time() + wait
        self.update(task, total=total, completed=completed, state=text, wait_ends=wait_ends)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Draw a bar and its state for each task."""
        for task in self.tasks:
            yield Group(self.make_tasks_table([task]), self._state_line(task))

    def _state_line(self, task: Task) -> Text:
        text, wait_ends = task.fields["state"], task.fields["wait_ends"]
        if wait_ends is not None:
            text = text.replace("{wait}", _format_seconds(max(0.0, wait_ends - self.get_time())))
        # Wrapping is set here because the console may have it switched off.
        return Text(f"  {text}", no_wrap=False, overflow="fold")


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
