"""The ledger, with the settings of another library.

Run it with `python -m benchmarks.ledger_suite.peer_redrive URL BATCH JOBS`.
"""

from contextlib import closing

from benchmarks.isolation import print_result
from benchmarks.ledger_suite.drain import LedgerDrain
from benchmarks.ledger_suite.peers import arguments


def main() -> None:
    url, batch, jobs = arguments()
    with closing(LedgerDrain(url)) as own:
        own.fill(jobs, by=batch)
        print_result(own.drain(jobs, batch, 100))


if __name__ == "__main__":
    main()
