"""What the batch layer costs beside its bare sender. `make bench-batch` runs it; `--quick` only shows that it works."""

import argparse
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.batches import report
from benchmarks.batches.course import FULL, QUICK, run
from benchmarks.durable.course import databases
from benchmarks.report import machine
from benchmarks.shown import Shown, main, show, summarise


def measure(options: argparse.Namespace, _only: list[str]) -> Shown:
    effort = QUICK if options.quick else FULL
    with databases(effort.settings) as places:
        results = run(places, effort, show)
    return summarise(report, results, report.targets(results), head=machine(), rounds=effort.rounds)


if __name__ == "__main__":
    sys.exit(main("batch", __doc__, measure, quick="one short round"))
