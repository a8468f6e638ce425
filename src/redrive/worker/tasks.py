"""Background tasks: periodic work of a worker beside its jobs, such as schedules and readers of
streams.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..journal.bus import emit
from ..ledger import audit
from ..ledger.jobs.sweeps import DEAD_LETTER_ACTS
from ..ledger.ledger import Ledger
from .arrivals import ArrivalQueue

SWEEP_IDLE_SECONDS = 1.0
"""Time between two looks for running sweeps."""
MAX_SWEEP_STEPS = 20
"""Steps of one sweep before the next one has its turn."""
ANCHOR_SECONDS = 300.0
"""Time between two looks at the audit log."""
ANCHOR_FILE_MODE = 0o600


class BackgroundTask(Protocol):
    """A periodic task. Each has a thread of its own in the worker.

    Several workers run the same task at once, so it must be safe then.
    """

    @property
    def name(self) -> str:
        """For log records and thread names."""

    @property
    def every(self) -> float:
        """Seconds from the end of one run to the start of the next."""

    def do(self, now: datetime, /) -> None:
        """Run once. An error is logged, and the task runs again after a growing pause.

        Args:
            now: By the ledger's clock.
        """


@runtime_checkable
class ProducesEvents(Protocol):
    """A task that reads events for the worker to store."""

    def attach(self, arrivals: ArrivalQueue, /) -> None:
        """Set the queue for the events, before the first run."""

    def end(self) -> None:
        """Handle events that were queued and not stored. No run follows."""


class SweepTask:
    """Executes the steps of running sweeps over dead letters.

    Any number of workers may do it at once.
    """

    name = "sweeps"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.every = SWEEP_IDLE_SECONDS
        """Seconds until the next run: short enough to keep the rate of the fastest sweep."""

    def do(self, _now: datetime, /) -> None:
        """Execute the next steps of each sweep."""
        sweeps = self._ledger.sweeps.list(state="running", acts=DEAD_LETTER_ACTS)
        self.every = min([SWEEP_IDLE_SECONDS, *(self._execute_steps(sweep.id) for sweep in sweeps)])

    def _execute_steps(self, sweep_id: int) -> float:
        """Execute steps of one sweep. Return the seconds until its next step."""
        for _ in range(MAX_SWEEP_STEPS):
            step = self._ledger.sweeps.step(sweep_id)
            if step.sweep.state != "running":
                return SWEEP_IDLE_SECONDS
            if step.wait:
                return step.wait
        return 0.0


class AuditAnchorTask:
    """Emits the head of the audit log whenever it has changed.

    Any number of workers may do it at once.

    A hash chain shows that an entry was changed. A chain that was rewritten, cut or emptied as a
    whole is noticed only by comparing it with an anchor kept elsewhere, such as in the logs, in a
    metric or in a file.
    """

    name = "audit anchors"
    every = ANCHOR_SECONDS

    def __init__(self, ledger: Ledger, file: str | None = None) -> None:
        self._ledger = ledger
        self._file = file
        self._last_head: tuple[int, str] | None = None

    def do(self, now: datetime, /) -> None:
        """Emit an anchor if the audit log has changed."""
        with self._ledger.reading() as connection:
            head = audit.head(connection)
        if head == self._last_head or (self._last_head is None and head[0] == 0):
            return
        anchor = f"{head[0]}:{head[1]}"
        emit("audit_anchor", {"entries": head[0], "anchor": anchor})
        if self._file is not None:
            _append_line(self._file, f"{anchor} {now.isoformat(timespec='seconds')}\n")
        self._last_head = head


def _append_line(file: str, line: str) -> None:
    """Append a line in one write, so that several workers may share a file."""
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, ANCHOR_FILE_MODE)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)
