"""What messages cost beside the floors and other libraries. `make bench-messages` runs it; `--quick` only shows that it works."""

import argparse
import os
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.durable.course import databases
from benchmarks.durable.targets import last_line
from benchmarks.streamed import report
from benchmarks.streamed.course import FULL, MANY, QUICK, redis_with_log, run
from benchmarks.streamed.results import judge
from benchmarks.targets import exit_code


def show(text: str) -> None:
    """One line that overwrites itself, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.messages", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; the figures mean little")
    parser.add_argument("--only", default="", help="rounds, peers, memory, letters; with commas between")
    parser.add_argument("--out", type=Path, help="where messages.md and messages.svg go (default: here; with --quick, nowhere)")
    parser.epilog = f"{MANY}=1000000 measures memory over so many messages, and lists beside so many dead letters."
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else FULL
    only = [name for name in options.only.split(",") if name]
    out = options.out or (None if options.quick or only else Path(__file__).parent)
    with databases(effort.settings) as places, redis_with_log() as redis_url:
        results = run(places, redis_url, effort, only, show)
    show("")
    judgements = judge(results)
    print(report.place(results), end="\n\n")
    print("\n\n".join(table.text() for table in report.tables(results, judgements)), end="\n\n")
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "messages.md").write_text(report.markdown(results, judgements, effort.rounds), encoding="utf-8")
        (out / "messages.svg").write_text(report.picture(results), encoding="utf-8")
        print(f"written: {os.path.relpath(out / 'messages.md')}, {os.path.relpath(out / 'messages.svg')}")
    print(last_line(judgements))
    return exit_code(judgements)  # type: ignore[arg-type]  # it only asks which were missed


if __name__ == "__main__":
    sys.exit(main())
