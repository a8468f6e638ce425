"""Compare the storage backends with their clients.

Run it with `make bench-storage`. `--quick` only checks that it works.

It takes five to ten minutes, and prints a line for each round.
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
from tests.servers.sftp import sshd

MEMORY = Path("/dev/shm")
NEEDED_BYTES = 14 * 1024**3


def measure(options: argparse.Namespace, only: list[str]) -> Output:
    effort = QUICK if options.quick else FULL
    backends = tuple(only or ALL)
    if "sftp" in backends and sshd() is None:
        sys.exit("sftp: no sshd on this machine; install openssh-server, or name other backends with --only")
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the files in memory are deleted
    in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > NEEDED_BYTES
    if in_memory:
        os.environ.setdefault(FOLDER, str(MEMORY))  # so that the disk of the servers does not matter
    cases: dict[report.Case, list[report.Sample]] = {}

    def progress(line: str) -> None:
        print(f"{time.monotonic() - began:4.0f} s  {line}", flush=True)

    for backend in backends:
        cases |= run(backend, effort, libraries(backend), progress)
    results = report.Results(effort.size, effort.count, effort.rounds, in_memory, cases)
    outcomes = report.targets(results)
    return Output(
        machine(),
        report.tables(results, outcomes),
        outcomes,
        lambda: report.markdown(results, outcomes),
        lambda: report.picture(results),
    )


def libraries(backend: str) -> tuple[str, ...]:
    """Return the roles of the installed libraries. The peer of a backend on obstore is our own backend with another client."""
    has_peer = backend in report.RIVALS or find_spec("remote_store")
    return ("ours", "native", "peer") if has_peer else ("ours", "native")


if __name__ == "__main__":
    sys.exit(main("storage", __doc__, measure, quick="little data", only=f"{', '.join(ALL)} (comma-separated)"))
