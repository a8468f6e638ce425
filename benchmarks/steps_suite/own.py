"""Jobs of ten steps with the whole worker.

Run it with `python -m benchmarks.steps_suite.own URL COMMAND JOBS [THREADS]`.

COMMAND is `sync`, `async` or `transaction` (all steps in the transaction of the job).
"""

import sys
import time
from typing import Any

from benchmarks.isolation import print_result
from benchmarks.ledger_suite.drain import analyze
from benchmarks.steps_suite.results import THREADS
from redrive import App, current

STEPS = 10


def plus_one(number: int) -> int:
    return number + 1


async def plus_one_async(number: int) -> int:
    return number + 1


def measure(url: str, name: str, jobs: str, threads: str = str(THREADS)) -> float:
    """Return jobs per second."""
    with App(url, migrate=True) as app:
        return _rate(app, name, int(jobs), int(threads))


def _rate(app: App, name: str, jobs: int, threads: int) -> float:
    @app.command("sync")
    def run_sync() -> int:
        number = 0
        for step in range(STEPS):
            number = current().step(f"step {step}", plus_one, number)
        return number

    @app.command("async")
    async def run_async() -> int:
        number = 0
        for step in range(STEPS):
            number = await current().step(f"step {step}", plus_one_async, number)
        return number

    @app.command("transaction", in_transaction=True)
    def run_in_transaction(_connection: Any) -> int:
        number = 0
        for step in range(STEPS):
            number = current().step(f"step {step}", plus_one, number)
        return number

    command: Any = {"sync": run_sync, "async": run_async, "transaction": run_in_transaction}[name]
    handles = app.submit_many(command.bind() for _ in range(jobs))
    analyze(app.ledger)
    worker = app.worker(threads=threads)
    began = time.perf_counter()
    worker.start()
    while worker.status.done < jobs and time.perf_counter() - began < 100:
        time.sleep(0.002)
    seconds = time.perf_counter() - began
    status = worker.status
    worker.close()
    if status.done < jobs or app.ledger.imbalance() or handles[-1].result(1) != STEPS:
        raise RuntimeError(f"only {status.done} of {jobs} jobs: {status}; {app.ledger.counts()}")
    return jobs / seconds


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
