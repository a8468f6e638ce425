"""Shared by the worker's tests: job types, jobs, and waiting for a worker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from redrive import RetryPolicy
from redrive.engine.settings import RetrySettings
from redrive.journal import Record, subscribe
from redrive.ledger import Job, Lease, Ledger, NewJob
from redrive.ledger.jobs.pauses import read_controls
from redrive.worker import maintenance
from redrive.worker.job_type import JobType

FAST = RetryPolicy(max_attempts=3, backoff_base=0.01, backoff_max=0.02, jitter=0.0)
MAX_WAIT_SECONDS = 60.0
EXECUTIONS = ["thread", "async"]


def kind(name: str, run: Callable[..., Any], execution: Any = "thread", *, policy: RetryPolicy = FAST, **more: Any) -> JobType:
    """Return a job type with short waits. Options of `retry` go to its settings."""
    fields = ("concurrency", "rate", "on_exhausted", "parks_on_outage", "tenants", "is_sequenced")
    own = {field: more.pop(field) for field in fields if field in more}
    return JobType(name, run, execution, RetrySettings().using(policy, {"attempt_timeout": None, **more}), **own)


def for_execution(execution: str, fn: Any) -> Any:
    """Return the function, as a coroutine function if it runs on the event loop."""

    async def task(lease: Lease) -> Any:
        return fn(lease)

    return task if execution == "async" else fn


def submit(ledger: Ledger, name: str, count: int = 1, **more: Any) -> list[int]:
    """Submit jobs, and return their ids."""
    return [job.id for job in ledger.submit_many([NewJob(name, f"shop:ann:{n}:{name}:v1", **more) for n in range(count)])]


def until(met: Callable[[], bool], what: object = "") -> None:
    """Wait until a condition is met."""
    end = time.monotonic() + MAX_WAIT_SECONDS
    while not met():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def wait_for_jobs(ledger: Ledger, *ids: int) -> list[Job]:
    """Return the jobs when all of them are done or dead."""
    until(lambda: all((job := ledger.get(one)) is not None and job.state in ("done", "dead") for one in ids), ledger.counts())
    return [job for one in ids if (job := ledger.get(one)) is not None]


class Refreshes:
    """Workers that read pauses and limits often, and when they have done so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, every: float = 0.05) -> None:
        self._counts: Counter[int] = Counter()

        def counted(*args: Any) -> Any:
            self._counts[threading.get_ident()] += 1
            return read_controls(*args)

        monkeypatch.setattr(maintenance, "read_controls", counted)
        monkeypatch.setattr(maintenance, "REFRESH_CONTROLS_SECONDS", every)

    def wait(self, times: int = 1) -> None:
        """Wait until the worker has read them this often from now on, and applied them."""
        before = self._counts.copy()
        until(lambda: any(count > before[thread] + times for thread, count in self._counts.items()), "it reads them")


@contextmanager
def record_log(every: bool = True) -> Iterator[list[Record]]:
    """Collect the log records of the block."""
    records: list[Record] = []
    unsubscribe = subscribe(records.append, every=every, inline=True)
    try:
        yield records
    finally:
        unsubscribe()
