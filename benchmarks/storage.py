"""What the storage backends cost beside their clients. `make bench-storage` runs it; `--quick` only shows that it works.

Takes five to ten minutes, and says in a line what each round has found.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.output import Output, main
from benchmarks.report import machine
from benchmarks.storage_suite import report
from benchmarks.storage_suite.runner import ALL, FULL, QUICK, run
from tests.servers.process import FOLDER

MEMORY = Path("/dev/shm")
ROOM = 14 * 1024**3


def measure(options: argparse.Namespace, only: list[str]) -> Output:
    effort = QUICK if options.quick else FULL
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else gigabytes would stay in memory
    in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
    if in_memory:
        os.environ.setdefault(FOLDER, str(MEMORY))  # the clients are measured, not the disk beneath the servers
    cases: dict[report.Case, list[report.Seen]] = {}
    for backend in only or ALL:
        cases |= run(backend, effort, everybody(), lambda said: print(f"{time.monotonic() - began:4.0f} s  {said}", flush=True))
    results = report.Results(effort.size, effort.count, effort.rounds, in_memory, cases)
    outcomes = report.judged(results)
    return Output(
        machine(),
        report.tables(results, outcomes),
        outcomes,
        lambda: report.markdown(results, outcomes),
        lambda: report.picture(results),
    )


def everybody() -> tuple[str, ...]:
    """Who is measured here."""
    return ("ours", "native", "peer") if find_spec("remote_store") else ("ours", "native")


if __name__ == "__main__":
    sys.exit(main("storage", __doc__, measure, quick="little data", only=f"{', '.join(ALL)}; with commas between"))
