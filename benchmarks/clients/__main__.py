"""Compare the clients with bare libraries.

Run it with `make bench-clients`. `--quick` only checks that it works.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.clients import report
from benchmarks.clients.part import Part
from benchmarks.output import Output, main, show_progress
from benchmarks.report import machine

PARTS = ("http", "buffer")
"""Modules of this folder with a function `measure`."""


def measure(options: argparse.Namespace, only: list[str]) -> Output:
    parts: list[Part] = [
        import_module(f"benchmarks.clients.{name}").measure(options.quick, show_progress)
        for name in PARTS
        if not only or name in only
    ]
    return Output(
        machine(),
        report.tables(parts),
        report.outcomes(parts),
        lambda: report.markdown(parts),
        lambda: report.picture(parts),
    )


if __name__ == "__main__":
    sys.exit(main("clients", __doc__, measure, quick="a few short rounds", only=f"{', '.join(PARTS)} (comma-separated)"))
