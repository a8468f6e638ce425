"""Other libraries with empty handlers.

Run it with `python -m benchmarks.messages_suite.peer NAME REDIS_URL BATCH MESSAGES`.

The messages are in Redis when a worker starts. They are acknowledged after the handler, and stored nowhere else.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from benchmarks.isolation import print_result
from benchmarks.messages_suite.clock import GROUP, STREAM, Clock

TIMEOUT_SECONDS = 100


def empty_redis(redis_url: str) -> Any:
    import redis

    client = redis.Redis.from_url(redis_url)
    client.flushall()
    return client


async def wait_and_finish(clock: Clock) -> None:
    """Wait for the last message, then exit. Some libraries hang if they are cancelled."""
    if not await asyncio.to_thread(clock.over.wait, TIMEOUT_SECONDS):
        raise TimeoutError(f"only {clock.handled} of {clock.messages} messages")
    finish(clock)


def finish(clock: Clock) -> None:
    """Print the result and exit, because some libraries leave threads running."""
    print_result(clock.rate)
    sys.stdout.flush()
    os._exit(0)


def faststream(redis_url: str, batch: int, clock: Clock) -> None:
    from faststream.redis import RedisBroker, StreamSub

    async def main() -> None:
        empty_redis(redis_url).xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        broker = RedisBroker(redis_url, logger=None)

        @broker.subscriber(stream=StreamSub(STREAM, group=GROUP, consumer="c", max_records=batch, polling_interval=10))
        async def noop(_message: dict[str, Any]) -> None:
            clock.tick()

        await broker.connect()
        for _ in range(clock.messages):
            await broker.publish({"id": 1, "f": "noop"}, stream=STREAM)
        await broker.start()
        await wait_and_finish(clock)

    asyncio.run(main())


def taskiq(redis_url: str, batch: int, clock: Clock) -> None:
    from taskiq.api import run_receiver_task
    from taskiq_redis import RedisStreamBroker

    async def main() -> None:
        empty_redis(redis_url)
        broker = RedisStreamBroker(url=redis_url)

        @broker.task(task_name="noop")
        async def noop() -> None:
            clock.tick()

        await broker.startup()
        for _ in range(clock.messages):
            await noop.kiq()
        broker.is_worker_process = True
        receiver = asyncio.create_task(run_receiver_task(broker, max_async_tasks=batch, run_startup=False))
        await wait_and_finish(clock)
        await receiver

    asyncio.run(main())


def arq(redis_url: str, batch: int, clock: Clock) -> None:
    from arq import create_pool
    from arq.connections import RedisSettings
    from arq.worker import Worker, func

    async def noop(_context: Any) -> None:
        clock.tick()

    async def main() -> None:
        empty_redis(redis_url)
        settings = RedisSettings.from_dsn(redis_url)
        pool = await create_pool(settings)
        for _ in range(clock.messages):
            await pool.enqueue_job("noop")
        worker = Worker(
            functions=[func(noop, name="noop")],
            redis_settings=settings,
            burst=True,
            max_jobs=batch,
            poll_delay=0.01,
            handle_signals=False,
        )
        await worker.async_run()

    asyncio.run(main())


def dramatiq(redis_url: str, batch: int, clock: Clock) -> None:
    import dramatiq as library
    from dramatiq.brokers.redis import RedisBroker

    empty_redis(redis_url)
    broker = RedisBroker(url=redis_url)
    library.set_broker(broker)
    lock = threading.Lock()

    @library.actor
    def noop() -> None:
        with lock:
            clock.tick()

    for _ in range(clock.messages):
        noop.send()
    worker = library.Worker(broker, worker_threads=min(batch, 8))
    worker.start()
    if not clock.over.wait(TIMEOUT_SECONDS):
        raise TimeoutError(f"only {clock.handled} of {clock.messages} messages")
    worker.stop()


def celery(redis_url: str, _batch: int, clock: Clock) -> None:
    from celery import Celery

    empty_redis(redis_url)
    app = Celery("bench", broker=redis_url)
    app.conf.update(
        task_acks_late=True, task_ignore_result=True, worker_hijack_root_logger=False, worker_prefetch_multiplier=100,
        broker_connection_retry_on_startup=True, worker_redirect_stdouts=False,
    )  # fmt: skip

    @app.task(name="noop")
    def noop() -> None:
        clock.tick()

    for _ in range(clock.messages):
        noop.delay()

    def finish_when_done() -> None:
        if clock.over.wait(TIMEOUT_SECONDS):
            finish(clock)
        print(f"only {clock.handled} of {clock.messages} messages", file=sys.stderr, flush=True)
        os._exit(1)

    threading.Thread(target=finish_when_done, daemon=True).start()
    options = ["--pool", "solo", "--loglevel", "CRITICAL", "--without-gossip", "--without-mingle"]
    app.worker_main(["worker", *options])  # in the main thread, because it installs signal handlers


LIBRARIES: dict[str, Callable[[str, int, Clock], None]] = {
    "faststream": faststream, "taskiq": taskiq, "arq": arq, "dramatiq": dramatiq, "celery": celery,
}  # fmt: skip


def main() -> None:
    logging.disable(logging.CRITICAL)
    clock = Clock(int(sys.argv[4]))
    LIBRARIES[sys.argv[1]](sys.argv[2], int(sys.argv[3]), clock)
    finish(clock)


if __name__ == "__main__":
    main()
