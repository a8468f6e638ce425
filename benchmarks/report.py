"""Tables and page of a run: targets, an overview of the libraries, then each path."""

import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from benchmarks.candidate import Kind, release
from benchmarks.interval import number
from benchmarks.paths import Timings
from benchmarks.results import Results
from benchmarks.rounds import Cost, Effort
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, NONE, Outcome, summary_line
from benchmarks.targets import FROM_IMPORT, OURS

KINDS: tuple[Kind, ...] = ("sync", "async")


def machine() -> str:
    """Describe the machine in general terms."""
    cores = os.cpu_count() or 1
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{cores} core{'s' if cores != 1 else ''}, {datetime.now(UTC):%Y-%m-%d}"
    )


def tables(results: Results, outcomes: Sequence[Outcome]) -> list[Table]:
    all_tables = [_targets(outcomes), _overview(results)]
    all_tables += [_timings(results.success[kind]) for kind in KINDS if kind in results.success]
    all_tables += [_timings(results.retry[kind]) for kind in KINDS if kind in results.retry]
    all_tables += [_imports(results), _failures(results), _memory(results)]
    if results.absent:
        rows = [(name, reason) for name, reason in results.absent.items()]
        all_tables.append(Table("Not measured", ("case", "reason"), rows))
    return all_tables


def markdown(results: Results, outcomes: Sequence[Outcome], effort: Effort) -> str:
    head = f"""\
# Benchmark: retried call

Written by `make bench-call`: {machine()}.
The figures are CPU time of {effort.rounds} interleaved rounds. In each round, each candidate runs between two direct calls, and
the ratio is to the mean of both. All candidates make up to 3 attempts without a wait, and retry `ValueError`. `sleep` and
logging are disabled, so that only the overhead of retries is compared. {HOW_TO_READ}

![Bars on a logarithmic scale: Redrive and other libraries](call.svg)
"""
    body = "\n\n".join(table.markdown() for table in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


def _targets(outcomes: Sequence[Outcome]) -> Table:
    rows = []
    for j in outcomes:
        unit = j.target.unit
        figure = f"{j.figure}{unit[:1]}" if j.figure else NONE
        rows.append((j.target.what, j.target.text, figure, j.verdict, j.peers or NONE))
    return Table("Targets", ("case", "target", "redrive", "verdict", "peers"), rows)


def _first(timings: Timings | None, library: str, limit: bool) -> Cost | None:
    for candidate, cost in timings.costs.items() if timings else ():
        if candidate.library == library and candidate.form.limit == limit:
            return cost
    return None


def _times(cost: Cost | None) -> str:
    return f"{number(cost.ratio.median)}×" if cost else NONE


def _worst(figures: Iterable[float]) -> str:
    return number(max(figures, default=-1)).replace("-1", NONE)


def _overview(results: Results) -> Table:
    """One row for each library, with its first form."""
    timings = [*results.success.values(), *results.retry.values()]
    libraries = dict.fromkeys(c.library for t in timings for c in t.costs)
    rows = []
    for library in libraries:
        failures = results.first_failures_of(library)
        module = results.imports.get(_statement(library))
        rows.append(
            (
                f"{library} {release(library)}".strip(),
                _times(_first(results.success.get("sync"), library, False)),
                _times(_first(results.success.get("async"), library, False)),
                _times(_first(results.success.get("async"), library, True)),
                _times(_first(results.retry.get("sync"), library, False)),
                _times(_first(results.retry.get("async"), library, False)),
                number(module.milliseconds.median) if module else NONE,
                _worst(r.cycles for r in failures),
                _worst(r.added for r in failures),
                _worst(r.nested for r in failures),
            )
        )
    columns = (
        "library",
        "success, sync",
        "success, async",
        "async timeout",
        "one retry, sync",
        "one retry, async",
        "import, ms",
        "cycles",
        "frames",
        "3 × 3 × 3",
    )
    note = (
        "Redrive has its nested guard and a shared budget, and its import loads `retry` and `RetryPolicy`. The other libraries "
        "have their simplest form, without a budget. *Cycles* are objects that only the garbage collector can free after a "
        "failed call. *Frames* are added to the traceback. *3 × 3 × 3* is the number of calls of three nested layers with three "
        "attempts each. The layers also retry the library's own error, if it has one."
    )
    return Table("Overview", columns, rows, note)


def _statement(library: str) -> str:
    """Return the import that loads retries. `import redrive` alone loads nothing."""
    if library == OURS:
        return FROM_IMPORT
    names = {"hyx": "hyx.retry", "resilient-circuit": "resilient_circuit", "google-api-core": "google.api_core.retry"}
    return f"import {names.get(library, library)}"


def _timings(timings: Timings) -> Table:
    ranked = sorted(timings.costs.items(), key=lambda item: item[1].ratio.median)
    rows = [(c.label, f"{cost.ratio}", f"{number(cost.added / 1000)}") for c, cost in ranked]
    return Table(timings.title, ("case", "ratio", "µs added"), rows)


def _imports(results: Results) -> Table:
    rows = [(s, str(i.milliseconds), str(i.ratio) if i.ratio else NONE, str(i.modules)) for s, i in results.imports.items()]
    return Table("Cold import in a new interpreter", ("statement", "CPU ms", "ratio to tenacity", "modules"), rows)


def _failures(results: Results) -> Table:
    rows = [
        (f"{c.label}, {kind}", number(r.cycles), str(r.added), str(r.frames), str(r.nested), r.error)
        for (kind, c), r in results.failures.items()
    ]
    columns = ("case", "objects in cycles", "frames added", "frames in total", "calls of 3 × 3 × 3", "error")
    note = (
        "If the library raises its own error, frames are those of its traceback alone, and the three layers also retry "
        "that error. If they retry only `ValueError`, they make 3 calls."
    )
    return Table("After three failed attempts", columns, rows, note)


def _memory(results: Results) -> Table:
    rows = [(f"{c.label}, {kind}", number(round(size))) for (kind, c), size in results.memory.items()]
    note = "Additional bytes of a decorated function (sync), or of a running call (async)."
    return Table("Memory", ("case", "bytes"), rows, note)
