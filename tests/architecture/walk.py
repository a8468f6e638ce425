"""Count the files that one job and one partition pass through. `make walk` prints both counts.

A maintainer who follows one job, from submission through failure and dead letter to its replay, reads these files.
Only functions that run count. Importing a module does not.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import redrive
from redrive import App, backoff, retry
from redrive.ops import DeadLetterFilter, Operator
from redrive.partitions import Partition, Sink, row_count
from tests.ledgers import sqlite_ledger

PACKAGE = Path(redrive.__file__).parent
GIVE_UP_SECONDS = 60.0

LIMITS = {"job": 105, "partition": 107}
"""The counts when they were set. Lower them, never raise them.

Pauses, steps, sequences and charts are on the path of each job, so the goals are not reached: docs/adr/0016.
"""
GOALS = {"job": 60, "partition": 80}


class Trace:
    """The files of the package whose functions run, in order of first entry. All threads may add to it."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self.files: dict[str, None] = {}
        self._prefix = f"{package}/"
        # By identity: equal functions of two files are equal as code objects.
        self._codes: dict[int, CodeType] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call, as a profile function."""
        code = frame.f_code
        if event == "call" and id(code) not in self._codes:
            self._codes[id(code)] = code
            # Bodies of modules and classes run when they are imported, and have no fast locals.
            if code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(self._prefix):
                self.files.setdefault(code.co_filename.removeprefix(self._prefix))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Note the calls of this thread and of threads that start inside."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def follow_job(folder: Path) -> None:
    """Submit a job, let it fail until it is a dead letter, replay it, and read its result."""
    is_down = True
    with App(sqlite_ledger(folder)) as app:

        @app.command("receipts.send", key="shop:ann:{order}:receipt:v1", retry=retry(max_attempts=2, backoff=backoff.steps(0.01)))
        def send_receipt(order: str) -> str:
            if is_down:
                raise ConnectionError("mail server is down")
            return f"sent {order}"

        operator = Operator(app, actor="ann")
        job = send_receipt.submit("o-1")
        with app.worker(threads=1):
            _wait_until(lambda: job.state == "dlq")
            is_down = False
            plan = operator.dead_letters.replay(DeadLetterFilter(kind="receipts.send"))
            operator.apply(plan, because="mail server is up")
            _wait_until(lambda: send_receipt.submit("o-1").state == "done")
        assert send_receipt.submit("o-1").result() == "sent o-1"


def follow_partition(folder: Path) -> None:
    """Plan a backfill of one day, extract and validate it, and read its rows."""
    stores = {"raw": {"type": "local", "options": {"root": str(folder / "raw")}}}
    with App(sqlite_ledger(folder), stores=stores) as app:

        @app.dataset("crm", "orders", raw="raw", customers=["acme"], checks=[row_count(min=1)])
        def orders(partition: Partition, out: Sink) -> None:
            out.rows([{"order_id": 1, "day": str(partition.logical_date)}])

        operator = Operator(app, actor="ann")
        plan = operator.backfills.plan(orders, "2026-01-30", "2026-01-30")
        operator.apply(plan, because="a new dataset")
        with app.worker(threads=1):
            _wait_until(lambda: not orders.read("acme", "2026-01-30").missing)
        assert len(list(orders.read("acme", "2026-01-30").complete().rows())) == 1


WALKS: dict[str, Callable[[Path], None]] = {"job": follow_job, "partition": follow_partition}


def files_of(walk: Callable[[Path], None]) -> list[str]:
    """Return the files of a walk in order of first entry. It runs twice, so that nothing is imported in between."""
    trace = Trace()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        walk(Path(first))
        with trace.running():
            walk(Path(second))
    return list(trace.files)


def _wait_until(is_reached: Callable[[], bool]) -> None:
    end = time.monotonic() + GIVE_UP_SECONDS
    while not is_reached():
        if time.monotonic() > end:
            raise TimeoutError(f"not reached within {GIVE_UP_SECONDS} s")
        time.sleep(0.02)


def main(arguments: list[str]) -> None:
    """Print the number of files of each walk."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.walk", description=main.__doc__)
    parser.add_argument("--files", action="store_true", help="list the files in order of first entry")
    options = parser.parse_args(arguments)
    for name, walk in WALKS.items():
        files = files_of(walk)
        if options.files:
            print(*files, sep="\n")
        print(f"{name}: {len(files)} files, limit {LIMITS[name]}, goal {GOALS[name]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
