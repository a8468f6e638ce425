"""A worker of the demonstration, as a process of its own: `python -m redrive.demo.hand <ledger> <name> <lease>`."""

from __future__ import annotations

import sys
import time

from redrive.errors import LeaseLost
from redrive.ledger import Lease, Ledger, open_ledger

KIND = "letters.send"
TABLE = "CREATE TABLE sent (key text NOT NULL, worker text NOT NULL)"
WORK_SECONDS = 0.02
BATCH = 8


def main(url: str, name: str, lease: float) -> None:
    """Work until everything is done, whoever had begun it."""
    with open_ledger(url) as ledger:
        while True:
            ledger.maintenance.heartbeat(name)
            ledger.reap()
            # Claimed, not started: what only waits in the batch of a worker that dies has lost nothing by it.
            leases = ledger.claim({KIND: BATCH}, worker=name, lease=lease, start=False)
            if not leases:
                # What was running when a worker died comes last, and alone.
                leases = ledger.claim({KIND: 1}, worker=name, lease=lease, start=False, alone=True)
            for one in leases:
                for begun in ledger.start([one]):
                    _send(ledger, begun, name)
            if not leases:
                left = ledger.counts()[KIND]
                if not left.ready + left.leased:
                    return
                time.sleep(0.05)


def _send(ledger: Ledger, lease: Lease, name: str) -> None:
    time.sleep(WORK_SECONDS)
    try:
        with ledger.begin() as tx:  # the effect and the end of the job become durable together
            tx.exec_driver_sql("INSERT INTO sent VALUES (?, ?)", (lease.key, name))
            ledger.settle(lease.done(), tx=tx)
    except LeaseLost:
        ledger.maintenance.count_late([lease.done()])  # frozen for too long: another one has it, and this changed nothing


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
