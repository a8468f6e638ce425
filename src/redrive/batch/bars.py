"""Bar: the progress of a batch at a terminal. The journal drives it, so that senders do not depend on it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..journal.bus import subscribe
from ..journal.record import Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from .bar_lines import BarLines


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

        from .bar_lines import BarLines  # noqa: PLC0415  # needs Rich
    except ImportError:
        print('redrive: a progress bar needs Rich: pip install "redrive[cli]"', file=sys.stderr)  # noqa: T201  # the work goes on
        yield
        return
    # With soft_wrap, a log line above the bar stays one line, which can be searched and copied.
    shown = Console(stderr=True, soft_wrap=True) if console is None else console
    if not shown.is_terminal:
        yield
        return
    with BarLines(console=shown) as progress:
        unsubscribe = subscribe(Bars(progress), inline=True)
        try:
            yield
        finally:
            unsubscribe()


class Bars:
    """A sink of the journal that draws: one bar for each sender. Any thread may call it."""

    def __init__(self, progress: BarLines) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._settled: dict[str, int] = {}
        self._outages: dict[str, str] = {}
        """The outage that the last pass of a batch showed."""
        self._new_outages: dict[str, str] = {}
        """The outage that the current pass shows. Its record comes before the one of the pass."""

    def __call__(self, record: Record, /) -> None:
        """Draw what happened."""
        told = record.fields
        if not record.kind.startswith("batch_"):
            return
        name = str(told.get("operation") or next(iter(self._tasks), "batch"))
        if record.kind == "batch_started":
            self._start(name)
            return
        task = self._tasks.get(name)
        if task is None:
            return
        if record.kind == "batch_step":
            self._step(name, task, told.get("done") or 0, told.get("total"))
        elif record.kind == "batch_retry":
            said = f"retry {told['retry']} of {told['max_retries']} in {{wait}}, {told['pending']:,} pending"
            self._progress.say(task, said + self._outage(name), wait=told["wait"])
        elif record.kind == "batch_outage":
            self._new_outages[name] = str(told.get("reason") or "no reason given")
        elif record.kind == "batch_split":
            self._progress.say(task, f"looking for bad items among {told['items']:,}")
        elif record.kind in ("batch_pass", "batch_ended"):
            if record.kind == "batch_pass":
                self._outages[name] = self._new_outages.pop(name, "")
            self._settled[name] = told["acknowledged"] + told["given_up"]
            gone = f", {told['given_up']:,} given up" if told["given_up"] else ""
            said = f"{told['acknowledged']:,} acknowledged, {told['pending']:,} pending{gone}{self._outage(name)}"
            self._progress.say(task, said, total=told["sent"], completed=self._settled[name])
            if record.kind == "batch_ended":
                self._progress.stop_task(task)

    def _start(self, name: str) -> None:
        if name in self._tasks:
            self._progress.remove_task(self._tasks[name])
        self._tasks[name] = self._progress.add_task(name, total=None, said="sending", until=None)
        self._settled[name] = 0
        self._outages.pop(name, None)
        self._new_outages.pop(name, None)

    def _step(self, name: str, task: TaskID, done: int, total: int | None) -> None:
        settled = self._settled[name]
        whole = None if total is None else settled + total
        self._progress.say(task, f"sending{self._outage(name)}", completed=settled + done, total=whole)

    def _outage(self, name: str) -> str:
        reason = self._outages.get(name)
        return f"; outage: {reason}" if reason else ""
