"""What partitions cost, and what faults cost others. `make bench-partitions` runs it; `--quick` only shows that it works.

A million partitions; `REDRIVE_BENCH_PARTITIONS=10000000` for ten.
"""

import argparse
import os
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.durable.course import DURABLE, QUICK, databases
from benchmarks.durable.targets import last_line
from benchmarks.partitioned.faults import compared
from benchmarks.partitioned.measure import measured, memory
from benchmarks.partitioned.report import Found, judged, markdown, tables
from benchmarks.targets import exit_code


def show(text: str) -> None:
    """One line that overwrites itself, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few thousand partitions; the figures mean little")
    parser.add_argument("--only", choices=["sqlite", "postgres", "faults"], help="one part alone")
    parser.add_argument("--out", type=Path, help="where partitions.md goes (default: here; with --quick, nowhere)")
    options = parser.parse_args(arguments)
    big = 5000 if options.quick else int(os.environ.get("REDRIVE_BENCH_PARTITIONS", "1000000"))
    small, rounds, batch = (2500, 2, 20) if options.quick else (10_000, 15, 100)
    found: Found = {}
    with databases(QUICK.settings if options.quick else DURABLE) as places:
        for database in ("sqlite", "postgres"):
            for many in (small, big) if options.only in (None, database) else ():
                show(f"{database}, {many:,} partitions")
                url = places.new(database)
                # Few are due among ten thousand: as many rounds as there is work for.
                found[database, many] = measured(url, many, min(rounds, max(1, many // (20 * batch) - 1)), batch)
                found[database, many].add("memory", memory(url))
    show("the script of faults")
    tallies = compared(20 if options.quick else 200, 2 if options.quick else 10, 7) if options.only in (None, "faults") else {}
    show("")
    judgements = judged(found, small, big) if found else []
    shown = tables(found, judgements, tallies)
    print("\n\n".join(table.text() for table in shown), end="\n\n")
    out = options.out or (None if options.quick or options.only else Path(__file__).parent)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "partitions.md").write_text(markdown(shown, last_line(judgements)), encoding="utf-8")
        print(f"written: {os.path.relpath(out / 'partitions.md')}")
    print(last_line(judgements))
    return exit_code(judgements)  # type: ignore[arg-type]  # it only asks which were missed


if __name__ == "__main__":
    sys.exit(main())
