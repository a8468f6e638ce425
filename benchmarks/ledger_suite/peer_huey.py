"""huey with fsync.

Run it with `python -m benchmarks.ledger_suite.peer_huey URL BATCH JOBS`.
"""

import logging
import threading
import time

from benchmarks.isolation import print_result
from benchmarks.ledger_suite.peers import arguments


def main() -> None:
    from huey import SqliteHuey

    url, _batch, jobs = arguments()
    logging.disable(logging.CRITICAL)
    queue = SqliteHuey(filename=url.removeprefix("sqlite:///"), fsync=True, results=False)
    done, all_done = [0], threading.Event()

    @queue.task()
    def noop() -> None:
        done[0] += 1
        if done[0] == jobs:
            all_done.set()

    for _ in range(jobs):
        noop()
    consumer = queue.create_consumer(
        workers=1, worker_type="thread", periodic=False, initial_delay=0.01, check_worker_health=False
    )
    began = time.perf_counter()
    consumer.start()
    if not all_done.wait(100):
        raise TimeoutError(f"only {done[0]} of {jobs}")
    seconds = time.perf_counter() - began
    consumer.stop(graceful=True)
    print_result(jobs / seconds)


if __name__ == "__main__":
    main()
