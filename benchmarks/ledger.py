"""Compare the ledger with raw loops and with other libraries.

Run it with `make bench-ledger`. `--quick` only checks that it works.
"""

import argparse
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.ledger_suite import report
from benchmarks.ledger_suite.runner import FULL, QUICK, open_databases, run
from benchmarks.ledger_suite.targets import TARGETS
from benchmarks.output import Output, main, show_progress, summarise
from benchmarks.target import check_targets


def measure(options: argparse.Namespace, only: list[str]) -> Output:
    effort = QUICK if options.quick else FULL
    with open_databases(effort.settings) as databases:
        results = run(databases, effort, only, show_progress)
    return summarise(
        report, results, check_targets(results, TARGETS), head=report.describe_machine(results), rounds=effort.rounds
    )


if __name__ == "__main__":
    sys.exit(
        main(
            "ledger",
            __doc__,
            measure,
            quick="a few short rounds and small tables",
            only="drains, submits, once, peers, idle, backlogs, tenants, distance (comma-separated)",
        )
    )
