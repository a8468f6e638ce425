"""Progress bars of batches in a terminal.

Log records drive them, so senders do not depend on them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..journal.bus import subscribe
from ..journal.record import Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from .rich_progress import TwoLineProgress


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

        from .rich_progress import TwoLineProgress  # noqa: PLC0415  # needs Rich
    except ImportError:
        hint = 'redrive: a progress bar needs Rich: pip install "redrive[cli]"'
        print(hint, file=sys.stderr)  # noqa: T201  # the batch is sent without a bar
        yield
        return
    if console is None:
        # With soft_wrap, a log line above the bar stays one line, which can be searched and copied.
        console = Console(stderr=True, soft_wrap=True)
    if not console.is_terminal:
        yield
        return
    with TwoLineProgress(console=console) as progress:
        unsubscribe = subscribe(ProgressBars(progress), inline=True)
        try:
            yield
        finally:
            unsubscribe()


@dataclass(slots=True)
class BarState:
    """The bar of one sender."""

    task: TaskID
    settled: int = 0
    """Items that were acknowledged or given up in earlier passes."""
    outage: str = ""
    """Reason of the outage that the last pass showed."""
    next_outage: str = ""
    """Reason of the outage in the current pass. Its log record comes before that of the pass."""

    @property
    def outage_text(self) -> str:
        """The outage as the end of a state."""
        return f"; outage: {self.outage}" if self.outage else ""


class ProgressBars:
    """A journal sink that draws one bar for each sender. Any thread may call it."""

    def __init__(self, progress: TwoLineProgress) -> None:
        self._progress = progress
        self._bars: dict[str, BarState] = {}

    def __call__(self, record: Record, /) -> None:
        """Update the bar of a sender."""
        if not record.kind.startswith("batch_"):
            return
        fields = record.fields
        name = str(fields.get("operation") or next(iter(self._bars), "batch"))
        if record.kind == "batch_started":
            self._start(name)
        elif (state := self._bars.get(name)) is not None:
            self._update(state, record.kind, fields)

    def _start(self, name: str) -> None:
        if name in self._bars:
            self._progress.remove_task(self._bars[name].task)
        task = self._progress.add_task(name, total=None, state="sending", wait_ends=None)
        self._bars[name] = BarState(task)

    def _update(self, bar: BarState, kind: str, fields: Mapping[str, Any]) -> None:
        if kind == "batch_step":
            done, total = fields.get("done") or 0, fields.get("total")
            self._progress.set_state(
                bar.task,
                f"sending{bar.outage_text}",
                completed=bar.settled + done,
                total=None if total is None else bar.settled + total,
            )
        elif kind == "batch_retry":
            retry = f"retry {fields['retry']} of {fields['max_retries']} in {{wait}}"
            text = f"{retry}, {fields['pending']:,} pending{bar.outage_text}"
            self._progress.set_state(bar.task, text, wait=fields["wait"])
        elif kind == "batch_outage":
            bar.next_outage = str(fields.get("reason") or "no reason given")
        elif kind == "batch_split":
            self._progress.set_state(bar.task, f"looking for bad items among {fields['items']:,}")
        elif kind == "batch_pass":
            bar.outage, bar.next_outage = bar.next_outage, ""
            self._show_counts(bar, fields)
        elif kind == "batch_ended":
            self._show_counts(bar, fields)
            self._progress.stop_task(bar.task)

    def _show_counts(self, bar: BarState, fields: Mapping[str, Any]) -> None:
        acknowledged, given_up = fields["acknowledged"], fields["given_up"]
        bar.settled = acknowledged + given_up
        counts = f"{acknowledged:,} acknowledged, {fields['pending']:,} pending"
        given_up_text = f", {given_up:,} given up" if given_up else ""
        text = f"{counts}{given_up_text}{bar.outage_text}"
        self._progress.set_state(bar.task, text, total=fields["sent"], completed=bar.settled)
