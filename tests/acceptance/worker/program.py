"""A worker process whose jobs write their start and end to a diary.

main([url, diary, name, option …]): `lease=2`, `drain=1`, `threads=4`, `elsewhere` (as on another machine, where other workers
cannot see that its process has ended), `until=idle` (ends when no job is left), `long=60` (seconds of long jobs), `isolated`
(also jobs in processes), `processes=2`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

import redrive.worker.worker as its_file
from redrive.core.outage import Parking
from redrive.core.policy import RetryPolicy
from redrive.engine.settings import RetrySettings
from redrive.ledger import Lease, Ledger, open_ledger
from redrive.worker.job_type import JobType
from redrive.worker.worker import Worker, run_until_signal
from tests.acceptance.crash.diary import Diary

from . import isolated

SETTINGS = RetrySettings(policy=RetryPolicy(max_attempts=5, backoff_base=0.05, backoff_max=0.2, jitter=0.0), attempt_timeout=None)
PARKING = Parking(first=0.2, longest=0.4)
WORK = 0.02
LONG = 1.0
FREE = 12


def kinds(diary: Diary, name: str, seconds: float = LONG) -> list[JobType]:
    """The functions of its jobs."""
    gate = diary.path.with_name("gate")

    def begin(lease: Lease) -> None:
        diary.note("begin", lease.kind, lease.key, name, lease.fence)

    def end(lease: Lease) -> None:
        diary.note("effect", lease.kind, lease.key, name, lease.fence)

    def work(lease: Lease) -> bytes:
        begin(lease)
        if lease.key.endswith("poison"):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(WORK)
        end(lease)
        return b"done"

    async def task(lease: Lease) -> bytes:
        begin(lease)
        await asyncio.sleep(WORK)
        end(lease)
        return b"done"

    def paid(connection: Connection, lease: Lease) -> bytes:
        begin(lease)
        connection.execute(text("INSERT INTO effect VALUES (:kind, :key)"), {"kind": lease.kind, "key": lease.key})
        end(lease)
        return b"done"

    def long(lease: Lease) -> None:
        begin(lease)
        time.sleep(seconds)
        end(lease)

    async def long_task(lease: Lease) -> None:
        begin(lease)
        await asyncio.sleep(seconds)
        end(lease)

    def flaky(lease: Lease) -> None:
        begin(lease)
        if lease.attempt == 1:
            raise ConnectionError(f"no answer for {lease.key}")
        end(lease)

    def brief(lease: Lease) -> None:
        end(lease)

    def gated(lease: Lease) -> None:
        """Finish the first few jobs. All others wait until the gate is open."""
        begin(lease)
        while int(lease.key[1:]) >= FREE and not gate.exists():
            time.sleep(WORK / 4)
        end(lease)

    def down(lease: Lease) -> None:
        begin(lease)
        if not gate.exists():
            raise ConnectionError(f"no answer for {lease.key}")
        end(lease)

    def ordered(lease: Lease) -> bytes:
        if lease.key.endswith("bad"):
            begin(lease)
            raise ValueError(f"{lease.key} is not valid")
        return work(lease)

    return [
        JobType("ordered", ordered, "thread", SETTINGS, is_sequenced=True, parks_on_outage=False),
        JobType("down", down, "thread", SETTINGS),
        JobType("work", work, "thread", SETTINGS),
        JobType("brief", brief, "thread", SETTINGS),
        JobType("gated", gated, "thread", SETTINGS),
        JobType("task", task, "async", SETTINGS),
        JobType("paid", paid, "transaction", SETTINGS),
        JobType("long", long, "thread", SETTINGS),
        JobType("long-task", long_task, "async", SETTINGS),
        JobType("flaky", flaky, "thread", SETTINGS, parks_on_outage=False),
        JobType("narrow", work, "thread", SETTINGS, concurrency=3),
    ]


def stop_when_idle(ledger: Ledger, worker: Worker) -> None:
    """Stop the worker when no job is left."""
    while any(tally.ready or tally.leased for tally in ledger.counts().values()):
        time.sleep(0.02)
    worker.stop()


faulthandler.register(signal.SIGUSR1)


def main(arguments: Sequence[str]) -> int:
    """Work until a signal arrives."""
    url, path, name, *rest = arguments
    options: dict[str, Any] = {word.partition("=")[0]: word.partition("=")[2] for word in rest}
    if "elsewhere" in options:
        vars(its_file)["identity"] = lambda: None
    given: dict[str, Any] = {option: float(options[option]) for option in ("lease", "drain") if option in options}
    threads = int(options.get("threads", 8))
    diary = Diary(Path(path))
    with open_ledger(url) as ledger:
        own = kinds(diary, name, float(options.get("long", LONG)))
        if "isolated" in options:
            own += isolated.app.kinds()
            given["processes"] = int(options.get("processes", 2))
        worker = Worker(ledger, own, name=name, threads=threads, parking=PARKING, **given)
        if "until" in options:
            threading.Thread(target=stop_when_idle, args=(ledger, worker), daemon=True).start()
        run_until_signal(worker)
    diary.note("ended", name)
    return 0
