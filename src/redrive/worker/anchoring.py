"""Anchoring: the head of the audit log, told to places that a writer of the database cannot change.

A hash chain shows that an entry in it was changed. That the chain was rewritten as a whole, cut or emptied shows only beside an
anchor that was kept elsewhere: in the journal (logs, traces), as a metric, and in a file.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from ..journal.bus import emit
from ..ledger import audit
from ..ledger.ledger import Ledger

EVERY = 300.0
"""Seconds between two looks at the audit log."""
MODE = 0o600


class Anchoring:
    """Emits an anchor whenever the audit log has grown, or shrunk. A chore: any number of workers may do it at once."""

    name = "audit anchors"
    every = EVERY

    def __init__(self, ledger: Ledger, file: str | None = None) -> None:
        self._ledger = ledger
        self._file = file
        self._last: tuple[int, str] | None = None

    def do(self, now: datetime, /) -> None:
        """Look once."""
        with self._ledger.reading() as connection:
            head = audit.head(connection)
        if head == self._last or (self._last is None and head[0] == 0):
            return
        anchor = f"{head[0]}:{head[1]}"
        emit("audit_anchor", {"entries": head[0], "anchor": anchor})
        if self._file is not None:
            _append(self._file, f"{anchor} {now.isoformat(timespec='seconds')}\n")
        self._last = head


def _append(file: str, line: str) -> None:
    """Add one line; in one write, so that several workers may share a file."""
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, MODE)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)
