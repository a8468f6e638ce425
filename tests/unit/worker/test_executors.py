"""Threads report every job that they have run."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from datetime import datetime, timezone
from typing import Any

from redrive.engine.settings import RetrySettings
from redrive.worker.attempt import AttemptContext, AttemptResult, CancelRequests
from redrive.worker.executors import ThreadPool
from redrive.worker.job_type import JobType

from .test_outcome import lease


class RacyQueue(deque[Any]):
    """Seems non-empty once while it is empty, as if another thread took the last job just then."""

    has_lied = False

    def __bool__(self) -> bool:
        if not len(self) and not self.has_lied:
            self.has_lied = True
            return True
        return bool(len(self))


def test_results_are_reported_if_another_thread_took_the_last_job() -> None:
    reported: list[AttemptResult] = []
    is_complete = threading.Event()

    def on_finished(results: list[AttemptResult]) -> None:
        reported.extend(results)
        if len(reported) == 3:
            is_complete.set()

    now = lambda: datetime.now(timezone.utc)  # noqa: E731
    attempts = AttemptContext(contextvars.copy_context(), now, None, CancelRequests())  # type: ignore[arg-type]  # no job uses the ledger
    pool = ThreadPool(None, attempts, 0, on_finished, "pool")  # type: ignore[arg-type]  # no job uses the ledger
    waiting = RacyQueue()
    pool._waiting = waiting
    thread = threading.Thread(target=pool._work, daemon=True)
    pool._threads.append(thread)
    pool._idle = 1
    thread.start()
    mail = JobType("mail", lambda lease: None, "thread", RetrySettings())
    pool.submit([(mail, lease(job_id=number)) for number in range(3)], 1)
    assert is_complete.wait(60)
    assert sorted(result.lease.job_id for result in reported) == [0, 1, 2]
    assert waiting.has_lied
    pool.close()
