"""A sink that runs in a thread of its own, so that a slow sink never delays the work."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections.abc import Callable

from ..record import Record, Sink

MAX_QUEUED_RECORDS = 10_000
EXIT_FLUSH_SECONDS = 1.0
"""How long the program's exit waits for queued records."""


class BackgroundSink:
    """A bounded queue in front of a sink. Any thread may call it.

    The thread starts with the first record. A forked child discards the queue of its parent, and
    starts its own thread.
    """

    def __init__(
        self, sink: Sink, on_drop: Callable[[], None], max_records: int = MAX_QUEUED_RECORDS
    ) -> None:
        """on_drop: called for each lost record, because the queue was full or the sink raised."""
        self._sink = sink
        self._on_drop = on_drop
        self._max_records = max_records
        self._closed = False
        self._reset()

    def __call__(self, record: Record, /) -> None:
        if self._process_id != os.getpid():
            self._reset()
        if self._thread is None:
            self._start()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._on_drop()

    def flush(self, timeout: float) -> bool:
        """Wait until the sink has received all queued records. False if it has not in time."""
        end = time.monotonic() + timeout
        while self._process_id == os.getpid() and self._queue.unfinished_tasks:
            if time.monotonic() >= end:
                return False
            time.sleep(0.001)
        return True

    def close(self) -> None:
        """End the thread after the queued records. Does not wait for it."""
        self._closed = True
        atexit.unregister(self._at_exit)
        if self._thread is not None and self._process_id == os.getpid():
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                pass  # The thread checks `_closed` after each record.

    def _reset(self) -> None:
        # A forked child needs a new lock: another thread of the parent may have held the old one.
        self._lock = threading.Lock()
        self._process_id = os.getpid()
        self._queue: queue.Queue[Record | None] = queue.Queue(self._max_records)
        self._thread: threading.Thread | None = None

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(
                    target=self._deliver, args=(self._queue,), name="redrive-journal", daemon=True
                )
                thread.start()
                self._thread = thread
                atexit.register(self._at_exit)

    def _deliver(self, records: queue.Queue[Record | None]) -> None:
        while (record := records.get()) is not None:
            try:
                self._sink(record)
            except BaseException:  # Even sys.exit() in a sink must not end the thread.
                self._on_drop()
            finally:
                records.task_done()
            if self._closed and records.empty():
                return
        records.task_done()

    def _at_exit(self) -> None:
        self.flush(EXIT_FLUSH_SECONDS)
