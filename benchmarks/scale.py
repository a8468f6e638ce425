"""Measure how the cost of each operation grows: with workers, job types, tenants, stored rows and the size of a payload.

Run it with `make bench-scale`. `--quick` only checks that it works.

REDRIVE_BENCH_SCALE=10000000 adds a ledger with ten million rows of each kind.
"""

import argparse
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.ledger_suite.runner import open_databases
from benchmarks.output import Output, main, show_progress, summarise
from benchmarks.scale_suite import report
from benchmarks.scale_suite.results import PARTS, TARGETS
from benchmarks.scale_suite.runner import FULL, QUICK, run
from benchmarks.target import check_targets


def measure(options: argparse.Namespace, only: list[str]) -> Output:
    effort = QUICK if options.quick else FULL
    with open_databases(effort.settings) as databases:
        results = run(databases, effort, only, show_progress)
    return summarise(
        report, results, check_targets(results, TARGETS), head=report.describe_machine(results), rounds=effort.rounds
    )


if __name__ == "__main__":
    sys.exit(main("scale", __doc__, measure, quick="small ledgers, one round", only=f"{', '.join(PARTS)} (comma-separated)"))
