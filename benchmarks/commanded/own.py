"""Commands through the whole worker: python -m benchmarks.commanded.own URL COMMAND JOBS

COMMAND is `plain` or `async` (does nothing), or `plain-20ms` or `async-20ms` (sleeps for 20 ms).
"""

import asyncio
import sys
import time

from benchmarks.apart import tell
from benchmarks.durable.drain import analyze
from redrive import App

SECONDS = 0.02


def measured(url: str, name: str, many: str) -> float:
    """In a second."""
    with App(url, migrate=True) as app:
        return _rate(app, name, int(many))


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

    command = {"plain": noop, "async": anoop, "plain-20ms": nap, "async-20ms": anap}[name]
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
        raise RuntimeError(f"only {status.done} of {jobs}: {status}; {app.ledger.counts()}; {app.ledger.imbalance()}")
    return jobs / seconds


if __name__ == "__main__":
    tell(measured(*sys.argv[1:]))
