"""Milliseconds from submit to start on an idle worker, the median: python -m benchmarks.commanded.latency LIBRARY URL TIMES"""

import asyncio
import logging
import random
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median

from benchmarks.apart import tell

WARM = 5


class Course:
    """One submission after the other, each when the one before has begun and some time has passed."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.at = 0.0
        self.found = 0.0
        """Milliseconds, the median."""

    def start(self) -> None:
        """The work begins."""
        self.at = time.perf_counter()
        self.began.set()

    def run(self, submit: Callable[[], object], times: int) -> None:
        """Measure."""
        taken = []
        for number in range(WARM + times):
            time.sleep(random.uniform(0.02, 0.08))
            self.began.clear()
            before = time.perf_counter()
            submit()
            if not self.began.wait(30):
                raise TimeoutError("it never began")
            if number >= WARM:
                taken.append((self.at - before) * 1000)
        self.found = median(taken)


def redrive(url: str, course: Course, times: int) -> None:
    from redrive import App

    with App(url, migrate=True) as app:

        @app.command("noop")
        def noop() -> None:
            course.start()

        with app.worker():
            course.run(noop.submit, times)


def dbos(url: str, course: Course, times: int) -> None:
    from dbos import DBOS

    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "CRITICAL", "run_admin_server": False})

    @DBOS.workflow()
    def noop() -> None:
        course.start()

    DBOS.launch()
    queue = DBOS.register_queue("q", polling_interval_sec=0.05)
    enqueue = DBOS.enqueue_workflow if hasattr(DBOS, "enqueue_workflow") else None
    course.run((lambda: enqueue("q", noop)) if enqueue else (lambda: queue.enqueue(noop)), times)
    DBOS.destroy()


def huey(url: str, course: Course, times: int) -> None:
    from huey import SqliteHuey

    logging.disable(logging.CRITICAL)
    queue = SqliteHuey(filename=url.removeprefix("sqlite:///"), fsync=True, results=False)

    @queue.task()
    def noop() -> None:
        course.start()

    consumer = queue.create_consumer(workers=1, worker_type="thread", periodic=False, initial_delay=0.01)
    consumer.start()
    course.run(noop, times)
    consumer.stop(graceful=True)


def procrastinate(url: str, course: Course, times: int) -> None:
    import procrastinate as library

    logging.disable(logging.CRITICAL)

    async def main() -> None:
        app = library.App(connector=library.PsycopgConnector(conninfo=url))

        @app.task(name="noop")
        async def noop() -> None:
            course.start()

        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            worker = asyncio.create_task(app.run_worker_async(install_signal_handlers=False))
            await asyncio.sleep(0.5)
            loop = asyncio.get_running_loop()

            def submit() -> None:
                asyncio.run_coroutine_threadsafe(noop.defer_async(), loop).result()

            await asyncio.to_thread(course.run, submit, times)
            worker.cancel()

    asyncio.run(main())


def pgqueuer(url: str, course: Course, times: int) -> None:
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
            course.start()

        running = asyncio.create_task(queue.run(batch_size=10, dequeue_timeout=timedelta(seconds=1)))
        await asyncio.sleep(0.5)
        loop = asyncio.get_running_loop()

        def submit() -> None:
            asyncio.run_coroutine_threadsafe(submitting.enqueue("noop", b"{}"), loop).result()

        await asyncio.to_thread(course.run, submit, times)
        queue.shutdown.set()
        await running

    asyncio.run(main())


LIBRARIES: dict[str, Callable[[str, Course, int], None]] = {
    "redrive": redrive, "dbos": dbos, "huey": huey, "procrastinate": procrastinate, "pgqueuer": pgqueuer,
}  # fmt: skip


def measured(library: str, url: str, times: str) -> float:
    course = Course()
    LIBRARIES[library](url, course, int(times))
    return course.found


if __name__ == "__main__":
    tell(measured(*sys.argv[1:]))
