"""Background: a sink that hears from a thread of its own, so that a slow one never holds up the work."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections.abc import Callable

from .record import Record, Sink

SIZE = 10_000
LAST_WORDS = 1.0
"""Seconds that the end of the program waits for what is queued."""


class Background:
    """A bounded queue before a sink. Full: the record is lost, and `lose` counts it. The thread starts with the first record.

    Any thread may call it; a forked child drops what the parent had queued and starts a thread of its own.
    """

    def __init__(self, sink: Sink, lose: Callable[[], None], size: int = SIZE) -> None:
        self._sink = sink
        self._lose = lose
        self._size = size
        self._closed = False
        self._fresh()

    def __call__(self, record: Record, /) -> None:
        if self._process != os.getpid():
            self._fresh()
        if self._thread is None:
            self._start()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._lose()

    def flush(self, timeout: float) -> bool:
        """Wait until everything so far was heard; False when it was not in time."""
        end = time.monotonic() + timeout
        while self._process == os.getpid() and self._queue.unfinished_tasks:
            if time.monotonic() >= end:
                return False
            time.sleep(0.001)
        return True

    def close(self) -> None:
        """Hear what is queued, then end the thread. Waits for nobody."""
        self._closed = True
        atexit.unregister(self._at_exit)
        if self._thread is not None and self._process == os.getpid():
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                pass  # the thread sees for itself when it has heard the rest

    def _fresh(self) -> None:
        self._lock = threading.Lock()  # in a forked child, since the parent's may have been held at that moment
        self._process = os.getpid()
        self._queue: queue.Queue[Record | None] = queue.Queue(self._size)
        self._thread: threading.Thread | None = None

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._work, args=(self._queue,), name="redrive-journal", daemon=True)
                thread.start()
                self._thread = thread
                atexit.register(self._at_exit)

    def _work(self, records: queue.Queue[Record | None]) -> None:
        while (record := records.get()) is not None:
            try:
                self._sink(record)
            except BaseException:  # whatever a sink does, also sys.exit(): the next record may go through
                self._lose()
            finally:
                records.task_done()
            if self._closed and records.empty():
                return
        records.task_done()

    def _at_exit(self) -> None:
        self.flush(LAST_WORDS)
