"""What the ledger costs beside raw loops and its peers. `make bench-ledger` runs it; `--quick` only shows that it works."""

import argparse
import os
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.durable import report
from benchmarks.durable.course import FULL, QUICK, databases, run
from benchmarks.durable.targets import TARGETS, judge, last_line
from benchmarks.targets import exit_code


def show(text: str) -> None:
    """One line that overwrites itself, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few short rounds and small piles; the figures mean little")
    parser.add_argument("--only", default="", help="drains, submits, once, peers, idle, piles; with commas between")
    parser.add_argument("--out", type=Path, help="where ledger.md and ledger.svg go (default: here; with --quick, nowhere)")
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else FULL
    only = [name for name in options.only.split(",") if name]
    out = options.out or (None if options.quick or only else Path(__file__).parent)
    with databases(effort.settings) as places:
        results = run(places, effort, only, show)
    show("")
    judgements = judge(results, TARGETS)
    print(report.place(results), end="\n\n")
    print("\n\n".join(table.text() for table in report.tables(results, judgements)), end="\n\n")
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "ledger.md").write_text(report.markdown(results, judgements, effort.rounds), encoding="utf-8")
        (out / "ledger.svg").write_text(report.picture(results), encoding="utf-8")
        print(f"written: {os.path.relpath(out / 'ledger.md')}, {os.path.relpath(out / 'ledger.svg')}")
    print(last_line(judgements))
    return exit_code(judgements)  # type: ignore[arg-type]  # it only asks which were missed


if __name__ == "__main__":
    sys.exit(main())
