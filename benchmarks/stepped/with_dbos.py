"""Workflows of ten steps by DBOS: python -m benchmarks.stepped.with_dbos URL JOBS [THREADS]

They are started directly, without a queue, whose polling would cost time. DBOS runs them in its threads.
"""

import sys
import time

from benchmarks.apart import tell

STEPS = 10
WARM = 3


def measured(url: str, many: str, threads: str = "") -> float:
    """In a second."""
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

    jobs = int(many)
    DBOS.launch()
    try:
        for _ in range(WARM):
            run()
        began = time.perf_counter()
        handles = [DBOS.start_workflow(run) for _ in range(jobs)]
        results = [handle.get_result() for handle in handles]
        seconds = time.perf_counter() - began
    finally:
        DBOS.destroy()
    if results != [STEPS] * jobs:
        raise RuntimeError(f"wrong results: {results[:3]}")
    return jobs / seconds


if __name__ == "__main__":
    tell(measured(*sys.argv[1:]))
