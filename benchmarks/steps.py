"""What the steps of a job cost beside DBOS and Temporal. `make bench-steps` runs it; `--quick` only shows that it works."""

import argparse
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.durable.course import databases
from benchmarks.shown import Shown, main, show, summarise
from benchmarks.stepped import report
from benchmarks.stepped.course import FULL, QUICK, run
from benchmarks.stepped.results import TARGETS
from benchmarks.target import judge


def measure(options: argparse.Namespace, _only: list[str]) -> Shown:
    effort = QUICK if options.quick else FULL
    with databases(effort.settings) as places:
        results = run(places, effort, show)
    return summarise(report, results, judge(results, TARGETS), head=report.place(results), rounds=effort.rounds)


if __name__ == "__main__":
    sys.exit(main("steps", __doc__, measure, quick="one short round"))
