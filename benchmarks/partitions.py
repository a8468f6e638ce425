"""What partitions cost, and what faults cost others. `make bench-partitions` runs it; `--quick` only shows that it works.

A million partitions; `REDRIVE_BENCH_PARTITIONS=10000000` for ten.
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
from benchmarks.partitions_suite.faults import compared
from benchmarks.partitions_suite.measure import measured
from benchmarks.partitions_suite.report import Found, judged, markdown, picture, tables
from benchmarks.report import machine


def measure(options: argparse.Namespace, only: list[str]) -> Output:
    big = 2000 if options.quick else int(os.environ.get("REDRIVE_BENCH_PARTITIONS", "1000000"))
    small, rounds, batch = (1000, 1, 10) if options.quick else (10_000, 15, 100)
    found: Found = {}
    with open_databases(QUICK.settings if options.quick else DURABLE) as databases:
        for database in ("sqlite", "postgres"):
            for many in (small, big) if not only or database in only else ():
                show_progress(f"{database}, {many:,} partitions")
                url = databases.new(database)
                # Few are due among ten thousand: as many rounds as there is work for.
                found[database, many] = measured(url, many, min(rounds, max(1, many // (20 * batch) - 1)), batch)
                found[database, many].add(
                    "memory", (run_inline if options.quick else run_isolated)("benchmarks.partitions_suite.memory", url)
                )
    show_progress("the script of faults")
    tallies = compared(2 if options.quick else 200, 1 if options.quick else 10, 7) if not only or "faults" in only else {}
    outcomes = judged(found, small, big)
    made = tables(found, outcomes, tallies)
    return Output(machine(), made, outcomes, lambda: markdown(made, outcomes), lambda: picture(found))


if __name__ == "__main__":
    sys.exit(
        main(
            "partitions",
            __doc__,
            measure,
            quick="a thousand partitions or two",
            only="sqlite, postgres, faults; with commas between",
        )
    )
