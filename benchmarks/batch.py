"""Compare the batch layer with its bare sender.

Run it with `make bench-batch`. `--quick` only checks that it works.
"""

import argparse
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.batch_suite import report
from benchmarks.batch_suite.runner import FULL, QUICK, run
from benchmarks.ledger_suite.runner import open_databases
from benchmarks.output import Output, main, show_progress, summarise
from benchmarks.report import machine


def measure(options: argparse.Namespace, _only: list[str]) -> Output:
    effort = QUICK if options.quick else FULL
    with open_databases(effort.settings) as databases:
        results = run(databases, effort, show_progress)
    return summarise(report, results, report.targets(results), head=machine(), rounds=effort.rounds)


if __name__ == "__main__":
    sys.exit(main("batch", __doc__, measure, quick="one short round"))
