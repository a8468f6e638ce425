"""What a page of the console costs, in a small ledger and in a large one. `make bench-console` runs it; `--quick` tries it."""

import argparse
import os
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.consoled import report
from benchmarks.consoled.course import FULL, QUICK, run
from benchmarks.durable.course import databases
from benchmarks.durable.targets import last_line
from benchmarks.report import machine
from benchmarks.targets import exit_code


def show(text: str) -> None:
    """One line that overwrites itself, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; the figures mean little")
    parser.add_argument("--out", type=Path, help="where console.md and console.svg go (default: here; with --quick, nowhere)")
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else FULL
    out = options.out or (None if options.quick else Path(__file__).parent)
    with databases(effort.settings) as places:
        results = run(places, effort, show)
    show("")
    judgements = report.targets(results)
    print(machine(), end="\n\n")
    print("\n\n".join(table.text() for table in report.tables(results, judgements)), end="\n\n")
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "console.md").write_text(report.markdown(results, judgements, effort.rounds), encoding="utf-8")
        (out / "console.svg").write_text(report.picture(results), encoding="utf-8")
        print(f"written: {os.path.relpath(out / 'console.md')}, {os.path.relpath(out / 'console.svg')}")
    print(last_line(judgements))
    return exit_code(judgements)  # type: ignore[arg-type]  # it only asks which were missed


if __name__ == "__main__":
    sys.exit(main())
