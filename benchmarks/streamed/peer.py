"""Other libraries, each with tasks or messages that do nothing: python -m benchmarks.streamed.peer NAME REDIS_URL BATCH MESSAGES

All find their work in Redis when they start, and acknowledge it when it is done. None of them writes it anywhere before.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from benchmarks.apart import tell
from benchmarks.streamed.clock import GROUP, STREAM, Clock

PATIENCE = 100


def emptied(redis_url: str) -> Any:
    import redis

    client = redis.Redis.from_url(redis_url)
    client.flushall()
    return client


async def over(clock: Clock) -> None:
    """Until all are handled; then the end of the program: some never come back from being cancelled."""
    if not await asyncio.to_thread(clock.over.wait, PATIENCE):
        raise TimeoutError(f"only {clock.handled} of {clock.messages}")
    finish(clock)


def finish(clock: Clock) -> None:
    """Tell, and end; some of them leave threads behind that never do."""
    tell(clock.rate)
    sys.stdout.flush()
    os._exit(0)


def faststream(redis_url: str, batch: int, clock: Clock) -> None:
    from faststream.redis import RedisBroker, StreamSub

    async def main() -> None:
        emptied(redis_url).xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        broker = RedisBroker(redis_url, logger=None)

        @broker.subscriber(stream=StreamSub(STREAM, group=GROUP, consumer="c", max_records=batch, polling_interval=10))
        async def noop(_message: dict[str, Any]) -> None:
            clock.tick()

        await broker.connect()
        for _ in range(clock.messages):
            await broker.publish({"id": 1, "f": "noop"}, stream=STREAM)
        await broker.start()
        await over(clock)

    asyncio.run(main())


def taskiq(redis_url: str, batch: int, clock: Clock) -> None:
    from taskiq.api import run_receiver_task
    from taskiq_redis import RedisStreamBroker

    async def main() -> None:
        emptied(redis_url)
        broker = RedisStreamBroker(url=redis_url)

        @broker.task(task_name="noop")
        async def noop() -> None:
            clock.tick()

        await broker.startup()
        for _ in range(clock.messages):
            await noop.kiq()
        broker.is_worker_process = True
        receiver = asyncio.create_task(run_receiver_task(broker, max_async_tasks=batch, run_startup=False))
        await over(clock)
        await receiver

    asyncio.run(main())


def arq(redis_url: str, batch: int, clock: Clock) -> None:
    from arq import create_pool
    from arq.connections import RedisSettings
    from arq.worker import Worker, func

    async def noop(_context: Any) -> None:
        clock.tick()

    async def main() -> None:
        emptied(redis_url)
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

    emptied(redis_url)
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
    if not clock.over.wait(PATIENCE):
        raise TimeoutError(f"only {clock.handled} of {clock.messages}")
    worker.stop()


def celery(redis_url: str, _batch: int, clock: Clock) -> None:
    from celery import Celery

    emptied(redis_url)
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

    def ended() -> None:
        if clock.over.wait(PATIENCE):
            finish(clock)
        print(f"only {clock.handled} of {clock.messages}", file=sys.stderr, flush=True)
        os._exit(1)

    threading.Thread(target=ended, daemon=True).start()
    options = ["--pool", "solo", "--loglevel", "CRITICAL", "--without-gossip", "--without-mingle"]
    app.worker_main(["worker", *options])  # here: it wants signals


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
