"""Compare messages with minimal loops and with other libraries.

Run it with `make bench-messages`. `--quick` only checks that it works.

REDRIVE_BENCH_MESSAGES=1000000 sets the number of messages for the memory growth, and the number of stored dead letters.
"""

import argparse
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.ledger_suite.runner import open_databases
from benchmarks.messages_suite import report
from benchmarks.messages_suite.results import TARGETS
from benchmarks.messages_suite.runner import FULL, QUICK, redis_with_log, run
from benchmarks.output import Output, main, show_progress, summarise
from benchmarks.target import check_targets


def measure(options: argparse.Namespace, only: list[str]) -> Output:
    effort = QUICK if options.quick else FULL
    with open_databases(effort.settings) as databases, redis_with_log() as redis_url:
        results = run(databases, redis_url, effort, only, show_progress)
    return summarise(
        report, results, check_targets(results, TARGETS), head=report.describe_machine(results), rounds=effort.rounds
    )


if __name__ == "__main__":
    sys.exit(
        main("messages", __doc__, measure, quick="one short round", only="rounds, peers, memory, dead_letters (comma-separated)")
    )
