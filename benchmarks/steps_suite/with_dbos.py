"""Workflows of ten steps with DBOS.

Run it with `python -m benchmarks.steps_suite.with_dbos URL JOBS [THREADS]`.

The workflows are started without a queue, because a queue polls. DBOS runs them in its threads.
"""

import sys
import time

from benchmarks.isolation import print_result

STEPS = 10
WARM = 3


def measure(url: str, jobs: str, threads: str = "") -> float:
    """Return workflows per second."""
    from dbos import DBOS

    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "CRITICAL",
            "run_admin_server": False,
            **({"max_executor_threads": int(threads)} if threads else {}),
        }
    )

    @DBOS.step()
    def plus_one(number: int) -> int:
        return number + 1

    @DBOS.workflow()
    def run() -> int:
        number = 0
        for _ in range(STEPS):
            number = plus_one(number)
        return number

    count = int(jobs)
    DBOS.launch()
    try:
        for _ in range(WARM):
            run()
        began = time.perf_counter()
        handles = [DBOS.start_workflow(run) for _ in range(count)]
        results = [handle.get_result() for handle in handles]
        seconds = time.perf_counter() - began
    finally:
        DBOS.destroy()
    if results != [STEPS] * count:
        raise RuntimeError(f"wrong results: {results[:3]}")
    return count / seconds


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
