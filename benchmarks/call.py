"""Compare `redrive.retry` with other retry libraries.

Run it with `make bench-call`. `--quick` only checks that it works.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import failures, floors, imports, memory, paths, peers, plot, report, sleeps, subject
from benchmarks.candidate import Candidate, Kind, Libraries
from benchmarks.failures import FailureCost
from benchmarks.output import Output, main, show_progress
from benchmarks.results import REFERENCE, Results
from benchmarks.rounds import FULL, QUICK, Effort, Progress
from benchmarks.target import check_targets
from benchmarks.targets import FROM_IMPORT, IMPORT, TARGETS

KINDS: tuple[Kind, ...] = ("sync", "async")


def load_libraries(only: list[str]) -> Libraries:
    """Load Redrive, the floors and the other libraries, or only the named ones."""
    libraries = Libraries()
    entries = {"redrive": subject.load, "floor": floors.load, **peers.PEERS}
    for name, load in entries.items():
        if not only or name in only:
            libraries.add(name, load)
    return libraries


def run(libraries: Libraries, effort: Effort, progress: Progress) -> Results:
    absent = dict(libraries.absent)
    success = {kind: paths.success(kind, libraries.candidates(kind), effort, progress) for kind in KINDS}
    retry = {kind: paths.one_retry(kind, libraries.candidates(kind), effort, progress) for kind in KINDS}
    for timings in (*success.values(), *retry.values()):
        absent |= {f"{label}, {timings.kind}": reason for label, reason in timings.failed.items()}
    failed_calls: dict[tuple[Kind, Candidate], FailureCost] = {}
    sizes: dict[tuple[Kind, Candidate], float] = {}
    measures: dict[Kind, Callable[..., float]] = {"sync": memory.measure_function, "async": memory.measure_call}
    for kind in KINDS:
        base = measures[kind](floors.direct)
        for candidate in libraries.candidates(kind):
            progress(f"Failed calls and memory: {candidate.label}")
            try:
                if candidate.form.retries and candidate.form.bounded:
                    failed_calls[kind, candidate] = failures.measure(candidate, kind)
                sizes[kind, candidate] = measures[kind](candidate.form.wrap) - base
            except Exception as error:
                absent[f"{candidate.label}, {kind}"] = f"{type(error).__name__}: {error}"
    statements = [f"import {library.module}" for library in libraries.loaded if library.module]
    if IMPORT in statements:
        statements.append(FROM_IMPORT)
    import_costs, failed = imports.measure(statements, REFERENCE, effort, progress)
    return Results(success, retry, failed_calls, import_costs, sizes, absent | failed)


def measure(options: argparse.Namespace, only: list[str]) -> Output:
    effort = QUICK if options.quick else FULL
    sleeps.disable()
    peers.disable_logging()
    results = run(load_libraries(only), effort, show_progress)
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
            only="names of libraries, also 'redrive' and 'floor' (comma-separated)",
        )
    )
