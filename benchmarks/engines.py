"""What each engine carries beside its own loop and faststream. `make bench-engines` runs it; `--quick` shows that it works."""

import argparse
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.durable.course import databases
from benchmarks.engined import report
from benchmarks.engined.course import FULL, QUICK, run
from benchmarks.engined.results import TARGETS
from benchmarks.shown import Shown, main, show, summarise
from benchmarks.target import judge


def measure(options: argparse.Namespace, only: list[str]) -> Shown:
    effort = QUICK if options.quick else FULL
    with databases(effort.settings) as places:
        results = run(places, effort, only, show)
    return summarise(report, results, judge(results, TARGETS), head=report.place(results), rounds=effort.rounds)


if __name__ == "__main__":
    sys.exit(main("engines", __doc__, measure, quick="one short round", only="redis, nats, kafka; with commas between"))
