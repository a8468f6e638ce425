"""What clients cost beside bare libraries. `make bench-clients` runs it; `--quick` only shows that it works."""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.clients import report
from benchmarks.clients.half import Half

HERE = Path(__file__).resolve().parent
HALVES = ("http", "buffer")
"""Modules of this folder that measure."""


def show(text: str) -> None:
    """One line that overwrites itself, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few short rounds; the figures mean little")
    parser.add_argument("--only", default="", help=f"{', '.join(HALVES)}; with commas between")
    parser.add_argument("--out", type=Path, help="where clients.md and clients.svg go (default: benchmarks/; --quick: nowhere)")
    options = parser.parse_args(arguments)
    only = [name for name in options.only.split(",") if name]
    out = options.out or (None if options.quick or only else HERE.parent)
    halves: list[Half] = [
        import_module(f"benchmarks.clients.{name}").half(options.quick, show) for name in HALVES if not only or name in only
    ]
    show("")
    print(report.machine(), end="\n\n")
    print("\n\n".join(table.text() for table in report.tables(halves)), end="\n\n")
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "clients.md").write_text(report.markdown(halves), encoding="utf-8")
        (out / "clients.svg").write_text(report.picture(halves), encoding="utf-8")
        print(f"written: {os.path.relpath(out / 'clients.md')}, {os.path.relpath(out / 'clients.svg')}")
    print(report.last_line(halves))
    return 1 if any(target.missed for target in report.targets(halves)) else 0


if __name__ == "__main__":
    sys.exit(main())
