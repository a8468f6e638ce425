"""What the worker's tests have in common: kinds, jobs, and waiting for what a worker does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redrive import RetryPolicy
from redrive.engine.settings import Settings
from redrive.journal import Record, subscribe
from redrive.ledger import Job, Lease, Ledger, NewJob
from redrive.worker.kind import Kind

FAST = RetryPolicy(max_attempts=3, backoff_base=0.01, backoff_max=0.02, jitter=0.0)
PATIENCE = 60.0
COLOURS = ["plain", "async"]


def kind(name: str, run: Callable[..., Any], colour: Any = "plain", *, policy: RetryPolicy = FAST, **more: Any) -> Kind:
    """A kind with short waits. attempt_timeout, on, backoff … are its settings', all else its own."""
    own = {field: more.pop(field) for field in ("concurrency", "rate", "spent", "parks") if field in more}
    return Kind(name, run, colour, Settings().using(policy, {"attempt_timeout": None, **more}), **own)


def coloured(colour: str, fn: Any) -> Any:
    """The function, as a coroutine function where the colour is async."""

    async def task(lease: Lease) -> Any:
        return fn(lease)

    return task if colour == "async" else fn


def submit(ledger: Ledger, name: str, count: int = 1, **more: Any) -> list[int]:
    """So many jobs; their ids."""
    return [job.id for job in ledger.submit_many([NewJob(name, f"shop:ann:{n}:{name}:v1", **more) for n in range(count)])]


def until(met: Callable[[], bool], what: object = "") -> None:
    """Wait for it."""
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def ended(ledger: Ledger, *ids: int) -> list[Job]:
    """The jobs, when all of them are done or dead."""
    until(lambda: all((job := ledger.get(one)) is not None and job.state in ("done", "dead") for one in ids), ledger.counts())
    return [job for one in ids if (job := ledger.get(one)) is not None]


@contextmanager
def heard(every: bool = True) -> Iterator[list[Record]]:
    """The records meanwhile."""
    records: list[Record] = []
    unsubscribe = subscribe(records.append, every=every, inline=True)
    try:
        yield records
    finally:
        unsubscribe()
