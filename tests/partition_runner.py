"""A partition runner without a worker, one turn at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redrive.core.event_loop_thread import EventLoopThread
from redrive.ledger import Ledger
from redrive.partitions.datasets.dataset import Extraction
from redrive.partitions.work.runner import PartitionRunner
from redrive.worker.work_source import SourceExecutors


class SteppedRunner(PartitionRunner):
    """A runner that a test or a program drives."""

    def __init__(self, ledger: Ledger, extractions: Sequence[Extraction], /, *, worker: str = "worker", **options: Any) -> None:
        super().__init__(extractions, **options)
        self._ended = threading.Event()
        self._loops: list[EventLoopThread] = []
        self.attach(worker, ledger, SourceExecutors(self._open_loop, self._ended.set))

    def _open_loop(self) -> EventLoopThread:
        self._loops.append(EventLoopThread("extractions"))
        return self._loops[0]

    def wait(self, seconds: float) -> None:
        """Wait until an extraction has ended, at most this long."""
        if not self.has_results:
            self._ended.wait(seconds)
        self._ended.clear()

    def run_until_idle(self, ledger: Ledger) -> None:
        """Extract everything that is due."""
        while self.turn(ledger.now()) == 0 or self.running:
            self.wait(0.5)

    def close(self) -> None:
        """End the event loop."""
        for loop in self._loops:
            loop.close()


@contextmanager
def stepped_runner(*args: Any, **options: Any) -> Iterator[SteppedRunner]:
    """Yield a runner that is closed at the end of the block."""
    runner = SteppedRunner(*args, **options)
    try:
        yield runner
    finally:
        runner.close()
