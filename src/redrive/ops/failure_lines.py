"""Failed attempts of a worker as lines for a terminal or a service's log, limited in number."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from ..journal import bus
from ..journal.record import Record
from ..journal.sinks.logging import WARNING, format_record, level_of

KINDS = frozenset(
    ("retry", "giveup", "blocked", "lost_lease", "late", "rejected", "lost", "worker_gone")
)
"""Records that are printed beside all warnings."""
MOST = 20
"""Lines in a window. An outage fails thousands of attempts, which must not fill a disk."""
WINDOW = 10.0
"""Seconds of a window."""

Show = Callable[[str, str, Mapping[str, Any]], None]
"""Takes the line, the record's kind and its fields."""


class FailureLines:
    """A journal sink that shows failures. Belongs to the thread of its subscription."""

    def __init__(self, show: Show, clock: Callable[[], float] = monotonic, /) -> None:
        self._show, self._clock = show, clock
        self._until = 0.0
        self._shown = self._hidden = 0

    def __call__(self, record: Record, /) -> None:
        """Show this record, unless the window is full."""
        fields = record.fields
        loud = level_of(record.kind, fields.get("reason"), fields.get("item")) >= WARNING
        if record.kind not in KINDS and not loud:
            return
        now = self._clock()
        if now >= self._until:
            self.finish()
            self._until, self._shown = now + WINDOW, 0
        if self._shown < MOST:
            self._shown += 1
            self._show(format_record(record), record.kind, fields)
        else:
            self._hidden += 1

    def finish(self) -> None:
        """Show how many lines were left out."""
        hidden, self._hidden = self._hidden, 0
        if hidden:
            plural = "failure was" if hidden == 1 else "failures were"
            text = f"{hidden:,} more {plural} not printed; `redrive failures` groups all of them"
            self._show(text, "more", {"hidden": hidden})


@contextmanager
def shown(show: Show, /) -> Iterator[None]:
    """Show failures in the block, unless the program has set up logging, which has them too."""
    if is_logging():
        yield
        return
    lines = FailureLines(show)
    unsubscribe = bus.subscribe(lines)
    try:
        yield
    finally:
        bus.flush(2.0)
        unsubscribe()
        lines.finish()


def is_logging() -> bool:
    """Whether the program has given the `redrive` logger, or the root, a handler."""
    logging = sys.modules.get("logging")
    if logging is None:
        return False
    handlers = [*logging.getLogger("redrive").handlers, *logging.getLogger().handlers]
    return any(not isinstance(each, logging.NullHandler) for each in handlers)
