"""What `redrive.retry` costs beside its peers. `make bench-call` runs it; `--quick` only shows that it works."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import failures, floors, imports, memory, paths, peers, plot, report, sleeps, subject
from benchmarks.candidate import Candidate, Field, Kind
from benchmarks.failures import Remains
from benchmarks.output import Output, main, show_progress
from benchmarks.results import YARDSTICK, Results
from benchmarks.rounds import FULL, QUICK, Effort, Progress
from benchmarks.target import check_targets
from benchmarks.targets import FROM_IMPORT, IMPORT, TARGETS

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


def measure(options: argparse.Namespace, only: list[str]) -> Output:
    effort = QUICK if options.quick else FULL
    sleeps.remove()
    peers.hush()
    results = run(field(only), effort, show_progress)
    outcomes = check_targets(results, TARGETS)
    return Output(
        report.machine(),
        report.tables(results, outcomes),
        outcomes,
        lambda: report.markdown(results, outcomes, effort),
        lambda: plot.picture(results, report.machine()),
    )


if __name__ == "__main__":
    sys.exit(
        main(
            "call",
            __doc__,
            measure,
            quick="a few short rounds",
            only="names of libraries, with commas between; 'redrive' and 'floor' too",
        )
    )
