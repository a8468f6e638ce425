"""What clients cost beside bare libraries. `make bench-clients` runs it; `--quick` only shows that it works."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.clients import report
from benchmarks.clients.half import Half
from benchmarks.output import Output, main, show_progress
from benchmarks.report import machine

HALVES = ("http", "buffer")
"""Modules of this folder that measure."""


def measure(options: argparse.Namespace, only: list[str]) -> Output:
    halves: list[Half] = [
        import_module(f"benchmarks.clients.{name}").half(options.quick, show_progress)
        for name in HALVES
        if not only or name in only
    ]
    return Output(
        machine(),
        report.tables(halves),
        report.outcomes(halves),
        lambda: report.markdown(halves),
        lambda: report.picture(halves),
    )


if __name__ == "__main__":
    sys.exit(main("clients", __doc__, measure, quick="a few short rounds", only=f"{', '.join(HALVES)}; with commas between"))
