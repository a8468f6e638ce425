"""Median milliseconds from submit to start on an idle worker.

Run it with `python -m benchmarks.commands_suite.latency LIBRARY URL TIMES`.
"""

import asyncio
import logging
import random
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median

from benchmarks.isolation import print_result

WARM = 5


class Probe:
    """Submits one command after the other, with a pause after each start."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.started_at = 0.0
        self.latency = 0.0
        """Median in milliseconds."""

    def start(self) -> None:
        """Record the start of a command."""
        self.started_at = time.perf_counter()
        self.started.set()

    def run(self, submit: Callable[[], object], times: int) -> None:
        """Measure the latency of several commands."""
        times_ms = []
        for number in range(WARM + times):
            time.sleep(random.uniform(0.02, 0.08))
            self.started.clear()
            before = time.perf_counter()
            submit()
            if not self.started.wait(30):
                raise TimeoutError("the command did not start within 30 s")
            if number >= WARM:
                times_ms.append((self.started_at - before) * 1000)
        self.latency = median(times_ms)


def redrive(url: str, probe: Probe, times: int) -> None:
    from redrive import App

    with App(url, migrate=True) as app:

        @app.command("noop")
        def noop() -> None:
            probe.start()

        with app.worker():
            probe.run(noop.submit, times)


def dbos(url: str, probe: Probe, times: int) -> None:
    from dbos import DBOS

    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "CRITICAL", "run_admin_server": False})

    @DBOS.workflow()
    def noop() -> None:
        probe.start()

    DBOS.launch()
    queue = DBOS.register_queue("q", polling_interval_sec=0.05)
    enqueue = DBOS.enqueue_workflow if hasattr(DBOS, "enqueue_workflow") else None
    probe.run((lambda: enqueue("q", noop)) if enqueue else (lambda: queue.enqueue(noop)), times)
    DBOS.destroy()


def huey(url: str, probe: Probe, times: int) -> None:
    from huey import SqliteHuey

    logging.disable(logging.CRITICAL)
    queue = SqliteHuey(filename=url.removeprefix("sqlite:///"), fsync=True, results=False)

    @queue.task()
    def noop() -> None:
        probe.start()

    consumer = queue.create_consumer(workers=1, worker_type="thread", periodic=False, initial_delay=0.01)
    consumer.start()
    probe.run(noop, times)
    consumer.stop(graceful=True)


def procrastinate(url: str, probe: Probe, times: int) -> None:
    import procrastinate as library

    logging.disable(logging.CRITICAL)

    async def main() -> None:
        app = library.App(connector=library.PsycopgConnector(conninfo=url))

        @app.task(name="noop")
        async def noop() -> None:
            probe.start()

        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            worker = asyncio.create_task(app.run_worker_async(install_signal_handlers=False))
            await asyncio.sleep(0.5)
            loop = asyncio.get_running_loop()

            def submit() -> None:
                asyncio.run_coroutine_threadsafe(noop.defer_async(), loop).result()

            await asyncio.to_thread(probe.run, submit, times)
            worker.cancel()

    asyncio.run(main())


def pgqueuer(url: str, probe: Probe, times: int) -> None:
    import asyncpg
    from pgqueuer import AsyncpgDriver, PgQueuer
    from pgqueuer.queries import Queries

    logging.disable(logging.CRITICAL)

    async def main() -> None:
        submitting = Queries(AsyncpgDriver(await asyncpg.connect(url)))
        await submitting.install()
        queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

        @queue.entrypoint("noop")
        async def noop(_job: object) -> None:
            probe.start()

        running = asyncio.create_task(queue.run(batch_size=10, dequeue_timeout=timedelta(seconds=1)))
        await asyncio.sleep(0.5)
        loop = asyncio.get_running_loop()

        def submit() -> None:
            asyncio.run_coroutine_threadsafe(submitting.enqueue("noop", b"{}"), loop).result()

        await asyncio.to_thread(probe.run, submit, times)
        queue.shutdown.set()
        await running

    asyncio.run(main())


LIBRARIES: dict[str, Callable[[str, Probe, int], None]] = {
    "redrive": redrive, "dbos": dbos, "huey": huey, "procrastinate": procrastinate, "pgqueuer": pgqueuer,
}  # fmt: skip


def measure(library: str, url: str, times: str) -> float:
    probe = Probe()
    LIBRARIES[library](url, probe, int(times))
    return probe.latency


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
