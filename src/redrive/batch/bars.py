"""Bar: how far a batch is, on the terminal of whoever started it. The journal drives it: the sender knows nothing of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..journal.bus import subscribe
from ..journal.record import Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


@contextmanager
def bar(console: Console | None = None, /) -> Iterator[None]:
    """Show a progress bar for every batch that is sent inside a block.

    It shows nothing if standard error is not a terminal. Extra: `cli`.

    Args:
        console: A Rich console. Default: standard error.

    Yields:
        Nothing.
    """
    try:
        from rich.console import Console  # noqa: PLC0415  # an extra
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    except ImportError:
        print('redrive: a progress bar needs Rich: pip install "redrive[cli]"', file=sys.stderr)  # noqa: T201  # the work goes on
        yield
        return
    shown = Console(stderr=True) if console is None else console
    if not shown.is_terminal:
        yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=shown, transient=False) as progress:
        unsubscribe = subscribe(Bars(progress), inline=True)
        try:
            yield
        finally:
            unsubscribe()


class Bars:
    """A sink of the journal that draws: one bar for each sender. Any thread may call it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._settled: dict[str, int] = {}

    def __call__(self, record: Record, /) -> None:
        """Draw what happened."""
        told = record.fields
        if not record.kind.startswith("batch_"):
            return
        name = str(told.get("operation") or next(iter(self._tasks), "batch"))
        if record.kind == "batch_started":
            if name in self._tasks:
                self._progress.remove_task(self._tasks[name])
            self._tasks[name] = self._progress.add_task(name, total=None, said="sending")
            self._settled[name] = 0
            return
        task = self._tasks.get(name)
        if task is None:
            return
        if record.kind == "batch_step":
            self._step(name, task, told.get("done") or 0, told.get("total"))
        elif record.kind == "batch_retry":
            said = f"retry {told['retry']} of {told['max_retries']} in {told['wait']:.3g} s, {told['pending']:,} pending"
            self._progress.update(task, said=said)
        elif record.kind == "batch_outage":
            self._progress.update(task, said=f"outage: {told.get('reason') or 'refused'}")
        elif record.kind == "batch_split":
            self._progress.update(task, said=f"looking for bad items among {told['items']:,}")
        else:
            self._settled[name] = told["acknowledged"] + told["given_up"]
            gone = f", {told['given_up']:,} given up" if told["given_up"] else ""
            said = f"{told['acknowledged']:,} acknowledged, {told['pending']:,} pending{gone}"
            self._progress.update(task, total=told["sent"], completed=self._settled[name], said=said)

    def _step(self, name: str, task: TaskID, done: int, total: int | None) -> None:
        settled = self._settled[name]
        self._progress.update(task, completed=settled + done, total=None if total is None else settled + total, said="sending")
