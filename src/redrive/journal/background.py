"""Background: a sink that hears from a thread of its own, so that a slow one never holds up the work."""

from __future__ import annotations

import os
import queue
import threading
import time

from .record import Record, Sink

SIZE = 10_000


class Background:
    """A bounded queue before a sink. Full: the record is dropped and counted. The thread starts with the first record.

    Any thread may call it; a forked child drops what the parent had queued and starts a thread of its own.
    """

    def __init__(self, sink: Sink, size: int = SIZE) -> None:
        self._sink = sink
        self._size = size
        self._lock = threading.Lock()
        self._fresh()
        self.dropped = 0

    def __call__(self, record: Record, /) -> None:
        if self._process != os.getpid():
            self._lock = threading.Lock()  # the parent's may have been held at the fork
            self._fresh()
        if self._thread is None:
            self._start()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def flush(self, timeout: float) -> bool:
        """Wait until everything so far was heard; False when it was not in time."""
        end = time.monotonic() + timeout
        while self._process == os.getpid() and self._queue.unfinished_tasks:
            if time.monotonic() >= end:
                return False
            time.sleep(0.001)
        return True

    def close(self) -> None:
        """Hear what is queued, then end the thread."""
        if self._thread is not None and self._process == os.getpid():
            self._queue.put(None)

    def _fresh(self) -> None:
        self._process = os.getpid()
        self._queue: queue.Queue[Record | None] = queue.Queue(self._size)
        self._thread: threading.Thread | None = None

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._work, args=(self._queue,), name="redrive-journal", daemon=True)
                thread.start()
                self._thread = thread

    def _work(self, records: queue.Queue[Record | None]) -> None:
        while (record := records.get()) is not None:
            try:
                self._sink(record)
            except Exception:  # whatever a sink does, the next record may go through
                self.dropped += 1
            finally:
                records.task_done()
        records.task_done()
