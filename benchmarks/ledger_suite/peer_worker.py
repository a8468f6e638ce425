"""The whole worker with short jobs.

Run it with `python -m benchmarks.ledger_suite.peer_worker URL BATCH JOBS`.
"""

import time

from benchmarks.isolation import print_result
from benchmarks.ledger_suite.peers import arguments


def main() -> None:
    from redrive.core.policy import RetryPolicy
    from redrive.engine.settings import RetrySettings
    from redrive.ledger import NewJob, open_ledger
    from redrive.worker.job_type import JobType
    from redrive.worker.worker import Worker

    url, _, jobs = arguments()
    ran: list[float] = []
    settings = RetrySettings().using(RetryPolicy(max_attempts=5), {"attempt_timeout": None})
    with open_ledger(url, migrate=True) as ledger:
        for first in range(0, jobs, 1000):
            ledger.submit_many([NewJob("work", f"k{at}") for at in range(first, min(first + 1000, jobs))])
        with Worker(ledger, [JobType("work", lambda _lease: ran.append(time.perf_counter()), "thread", settings)]):
            while len(ran) < jobs:
                time.sleep(0.01)
    # The worker adapts to the job duration and the network latency during the first quarter.
    skipped = jobs // 4
    print_result((jobs - skipped) / (ran[-1] - ran[skipped - 1]))


if __name__ == "__main__":
    main()
