"""What the ledger costs beside raw loops and its peers. `make bench-ledger` runs it; `--quick` only shows that it works."""

import argparse
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.durable import report
from benchmarks.durable.course import FULL, QUICK, databases, run
from benchmarks.durable.targets import TARGETS
from benchmarks.shown import Shown, main, show, summarise
from benchmarks.target import judge


def measure(options: argparse.Namespace, only: list[str]) -> Shown:
    effort = QUICK if options.quick else FULL
    with databases(effort.settings) as places:
        results = run(places, effort, only, show)
    return summarise(report, results, judge(results, TARGETS), head=report.place(results), rounds=effort.rounds)


if __name__ == "__main__":
    sys.exit(
        main(
            "ledger",
            __doc__,
            measure,
            quick="a few short rounds and small piles",
            only="drains, submits, once, peers, idle, piles, tenants, distance; with commas between",
        )
    )
