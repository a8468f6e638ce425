"""Measure partitions in a large table, and compare the handling of faults.

Run it with `make bench-partitions`. `--quick` only checks that it works.

REDRIVE_BENCH_PARTITIONS sets the number of partitions (default: 1,000,000).
"""

import argparse
import os
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.isolation import run_inline, run_isolated
from benchmarks.ledger_suite.runner import DURABLE, QUICK, open_databases
from benchmarks.output import Output, main, show_progress
from benchmarks.partitions_suite.faults import compare
from benchmarks.partitions_suite.measure import measure_partitions
from benchmarks.partitions_suite.report import Figures, check, markdown, picture, tables
from benchmarks.report import machine


def measure(options: argparse.Namespace, only: list[str]) -> Output:
    big = 2000 if options.quick else int(os.environ.get("REDRIVE_BENCH_PARTITIONS", "1000000"))
    small, rounds, batch = (1000, 1, 10) if options.quick else (10_000, 15, 100)
    figures: Figures = {}
    with open_databases(QUICK.settings if options.quick else DURABLE) as databases:
        for database in ("sqlite", "postgres"):
            for count in (small, big) if not only or database in only else ():
                show_progress(f"{database}, {count:,} partitions")
                url = databases.new(database)
                # A small table has few due partitions, which limits the number of rounds.
                figures[database, count] = measure_partitions(url, count, min(rounds, max(1, count // (20 * batch) - 1)), batch)
                figures[database, count].add(
                    "memory", (run_inline if options.quick else run_isolated)("benchmarks.partitions_suite.memory", url)
                )
    show_progress("fault scenario")
    tallies = compare(2 if options.quick else 200, 1 if options.quick else 10, 7) if not only or "faults" in only else {}
    outcomes = check(figures, small, big)
    all_tables = tables(figures, outcomes, tallies)
    return Output(machine(), all_tables, outcomes, lambda: markdown(all_tables, outcomes), lambda: picture(figures))


if __name__ == "__main__":
    sys.exit(
        main(
            "partitions",
            __doc__,
            measure,
            quick="2,000 partitions",
            only="sqlite, postgres, faults (comma-separated)",
        )
    )
