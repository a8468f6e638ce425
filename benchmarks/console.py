"""What a page of the console costs, in a small ledger and in a large one. `make bench-console` runs it; `--quick` tries it."""

import argparse
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.consoled import report
from benchmarks.consoled.course import FULL, QUICK, run
from benchmarks.durable.course import databases
from benchmarks.report import machine
from benchmarks.shown import Shown, main, show, summarise


def measure(options: argparse.Namespace, _only: list[str]) -> Shown:
    effort = QUICK if options.quick else FULL
    with databases(effort.settings) as places:
        results = run(places, effort, show)
    return summarise(report, results, report.targets(results), head=machine(), rounds=effort.rounds)


if __name__ == "__main__":
    sys.exit(main("console", __doc__, measure, quick="one short round"))
