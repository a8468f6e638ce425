"""What messages cost beside the floors and other libraries. `make bench-messages` runs it; `--quick` only shows that it works.

REDRIVE_BENCH_MESSAGES=1000000 measures memory over so many messages, and lists beside so many dead letters.
"""

import argparse
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.durable.course import databases
from benchmarks.shown import Shown, main, show, summarise
from benchmarks.streamed import report
from benchmarks.streamed.course import FULL, QUICK, redis_with_log, run
from benchmarks.streamed.results import TARGETS
from benchmarks.target import judge


def measure(options: argparse.Namespace, only: list[str]) -> Shown:
    effort = QUICK if options.quick else FULL
    with databases(effort.settings) as places, redis_with_log() as redis_url:
        results = run(places, redis_url, effort, only, show)
    return summarise(report, results, judge(results, TARGETS), head=report.place(results), rounds=effort.rounds)


if __name__ == "__main__":
    sys.exit(
        main("messages", __doc__, measure, quick="one short round", only="rounds, peers, memory, letters; with commas between")
    )
