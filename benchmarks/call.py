"""What `redrive.retry` costs beside its peers. `make bench-call` runs it; `--quick` only shows that it works."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import failures, floors, imports, memory, paths, peers, plot, report, sleeps, subject
from benchmarks.candidate import Candidate, Field, Kind
from benchmarks.failures import Remains
from benchmarks.results import YARDSTICK, Results
from benchmarks.rounds import FULL, QUICK, Effort, Progress
from benchmarks.targets import FROM_IMPORT, IMPORT, TARGETS, exit_code, judge, last_line

KINDS: tuple[Kind, ...] = ("sync", "async")


def field(only: list[str]) -> Field:
    """Redrive, the floors and the peers; or only those named."""
    entrants = Field()
    entries = {"redrive": subject.load, "floor": floors.load, **peers.PEERS}
    for name, load in entries.items():
        if not only or name in only:
            entrants.enter(name, load)
    return entrants


def run(entrants: Field, effort: Effort, progress: Progress) -> Results:
    absent = dict(entrants.absent)
    success = {kind: paths.success(kind, entrants.candidates(kind), effort, progress) for kind in KINDS}
    retry = {kind: paths.one_retry(kind, entrants.candidates(kind), effort, progress) for kind in KINDS}
    for timings in (*success.values(), *retry.values()):
        absent |= {f"{label}, {timings.kind}": why for label, why in timings.failed.items()}
    remains: dict[tuple[Kind, Candidate], Remains] = {}
    sizes: dict[tuple[Kind, Candidate], float] = {}
    measures: dict[Kind, Callable[..., float]] = {"sync": memory.per_function, "async": memory.per_call}
    for kind in KINDS:
        plain = measures[kind](floors.plain)
        for candidate in entrants.candidates(kind):
            progress(f"Failed calls and memory: {candidate.label}")
            try:
                if candidate.form.retries and candidate.form.bounded:
                    remains[kind, candidate] = failures.leaves(candidate, kind)
                sizes[kind, candidate] = measures[kind](candidate.form.wrap) - plain
            except Exception as error:
                absent[f"{candidate.label}, {kind}"] = f"{type(error).__name__}: {error}"
    statements = [f"import {library.module}" for library in entrants.libraries if library.module]
    if IMPORT in statements:
        statements.append(FROM_IMPORT)
    found, failed = imports.cold(statements, YARDSTICK, effort, progress)
    return Results(success, retry, remains, found, sizes, absent | failed)


def show(text: str) -> None:
    """One line that overwrites itself, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.call", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few short rounds; the figures mean little")
    parser.add_argument("--only", default="", help="names of libraries, with commas between; 'redrive' and 'floor' too")
    parser.add_argument("--out", type=Path, help="where call.md and call.svg go (default: here; with --quick, nowhere)")
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else FULL
    out = options.out or (None if options.quick or options.only else Path(__file__).parent)
    sleeps.remove()
    peers.hush()
    results = run(field([name for name in options.only.split(",") if name]), effort, show)
    show("")
    judgements = judge(results, TARGETS)
    print(report.machine(), end="\n\n")
    print("\n\n".join(table.text() for table in report.tables(results, judgements)), end="\n\n")
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "call.md").write_text(report.markdown(results, judgements, effort), encoding="utf-8")
        (out / "call.svg").write_text(plot.picture(results, report.machine()), encoding="utf-8")
        print(f"written: {os.path.relpath(out / 'call.md')}, {os.path.relpath(out / 'call.svg')}")
    print(last_line(judgements))
    return exit_code(judgements)


if __name__ == "__main__":
    sys.exit(main())
