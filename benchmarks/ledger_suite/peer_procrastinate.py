"""procrastinate.

Run it with `python -m benchmarks.ledger_suite.peer_procrastinate URL CONCURRENCY JOBS`.
"""

import asyncio
import logging
import time

from benchmarks.isolation import print_result
from benchmarks.ledger_suite.peers import arguments


async def main() -> None:
    import procrastinate

    url, concurrency, jobs = arguments()
    logging.disable(logging.CRITICAL)
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))

    @app.task(name="noop")
    async def noop() -> None:
        pass

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await noop.batch_defer_async(*[{} for _ in range(jobs)])
        began = time.perf_counter()
        await app.run_worker_async(
            wait=False, concurrency=min(concurrency, 10), install_signal_handlers=False, listen_notify=False
        )
        print_result(jobs / (time.perf_counter() - began))


if __name__ == "__main__":
    asyncio.run(main())
