"""DBOS queue.

Run it with `python -m benchmarks.ledger_suite.peer_dbos URL BATCH JOBS`.
"""

import time

from benchmarks.isolation import print_result
from benchmarks.ledger_suite.peers import arguments


def main() -> None:
    from dbos import DBOS

    url, _batch, jobs = arguments()
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "CRITICAL", "run_admin_server": False})

    @DBOS.workflow()
    def noop() -> None:
        return None

    DBOS.launch()
    queue = DBOS.register_queue("q", polling_interval_sec=0.05)
    for _ in range(5):
        noop()
    began = time.perf_counter()
    enqueue = DBOS.enqueue_workflow if hasattr(DBOS, "enqueue_workflow") else None
    handles = [enqueue("q", noop) if enqueue else queue.enqueue(noop) for _ in range(jobs)]
    for handle in handles:
        handle.get_result()
    print_result(jobs / (time.perf_counter() - began))
    DBOS.destroy()


if __name__ == "__main__":
    main()
