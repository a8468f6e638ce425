"""pgqueuer.

Run it with `python -m benchmarks.ledger_suite.peer_pgqueuer URL BATCH JOBS`.
"""

import asyncio
import logging
import time
from datetime import timedelta

from benchmarks.isolation import print_result
from benchmarks.ledger_suite.peers import arguments


async def main() -> None:
    import asyncpg
    from pgqueuer import AsyncpgDriver, PgQueuer
    from pgqueuer.queries import Queries

    url, batch, jobs = arguments()
    logging.disable(logging.CRITICAL)
    connection = await asyncpg.connect(url)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    await queries.install()
    await queries.enqueue(["noop"] * jobs, [b"{}"] * jobs, [0] * jobs)
    queue, done, all_done = PgQueuer(driver), [0], asyncio.Event()

    @queue.entrypoint("noop")
    async def noop(_job: object) -> None:
        done[0] += 1
        if done[0] == jobs:
            all_done.set()

    began = time.perf_counter()
    task = asyncio.create_task(queue.run(batch_size=batch, dequeue_timeout=timedelta(seconds=1)))
    await asyncio.wait_for(all_done.wait(), 100)
    seconds = time.perf_counter() - began
    queue.shutdown.set()
    await task
    print_result(jobs / seconds)


if __name__ == "__main__":
    asyncio.run(main())
