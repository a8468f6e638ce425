"""Compare each engine with a loop of its client and with faststream.

Run it with `make bench-engines`. `--quick` only checks that it works.
"""

import argparse
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.engines_suite import report
from benchmarks.engines_suite.results import TARGETS
from benchmarks.engines_suite.runner import FULL, QUICK, run
from benchmarks.ledger_suite.runner import open_databases
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
    sys.exit(main("engines", __doc__, measure, quick="one short round", only="redis, nats, kafka, rabbitmq (comma-separated)"))
