"""Commands per second with the whole worker.

Run it with `python -m benchmarks.commands_suite.own URL COMMAND JOBS`.

COMMAND is `sync` or `async` (empty), or `sync-20ms` or `async-20ms` (sleeps for 20 ms).
"""

import asyncio
import sys
import time

from benchmarks.isolation import print_result
from benchmarks.ledger_suite.drain import analyze
from redrive import App

SECONDS = 0.02


def measure(url: str, name: str, jobs: str) -> float:
    """Return commands per second."""
    with App(url, migrate=True) as app:
        return _rate(app, name, int(jobs))


def _rate(app: App, name: str, jobs: int) -> float:
    @app.command("noop")
    def noop() -> None:
        return None

    @app.command("anoop")
    async def anoop() -> None:
        return None

    @app.command("nap")
    def nap() -> None:
        time.sleep(SECONDS)

    @app.command("anap")
    async def anap() -> None:
        await asyncio.sleep(SECONDS)

    command = {"sync": noop, "async": anoop, "sync-20ms": nap, "async-20ms": anap}[name]
    for at in range(0, jobs, 1000):
        app.submit_many(command.bind() for _ in range(min(1000, jobs - at)))
    analyze(app.ledger)
    worker = app.worker()
    began = time.perf_counter()
    worker.start()
    while worker.status.done < jobs and time.perf_counter() - began < 100:
        time.sleep(0.002)
    seconds = time.perf_counter() - began
    status = worker.status
    worker.close()
    if status.done < jobs or app.ledger.imbalance():
        raise RuntimeError(f"only {status.done} of {jobs} commands: {status}; {app.ledger.counts()}; {app.ledger.imbalance()}")
    return jobs / seconds


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
