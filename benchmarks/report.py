"""The tables of a run: targets first, libraries side by side, then every path."""

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
from benchmarks.target import NONE, Outcome, summary_line
from benchmarks.targets import FROM_IMPORT, OURS

KINDS: tuple[Kind, ...] = ("sync", "async")


def machine() -> str:
    """Where it was measured, in general terms."""
    cores = os.cpu_count() or 1
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{cores} core{'s' if cores != 1 else ''}, {datetime.now(UTC):%Y-%m-%d}"
    )


def tables(results: Results, outcomes: Sequence[Outcome]) -> list[Table]:
    found = [_targets(outcomes), _side_by_side(results)]
    found += [_timings(results.success[kind]) for kind in KINDS if kind in results.success]
    found += [_timings(results.retry[kind]) for kind in KINDS if kind in results.retry]
    found += [_imports(results), _remains(results), _memory(results)]
    if results.absent:
        rows = [(name, reason) for name, reason in results.absent.items()]
        found.append(Table("Not measured", ("case", "reason"), rows))
    return found


def markdown(results: Results, outcomes: Sequence[Outcome], effort: Effort) -> str:
    head = f"""\
# What a call costs

Written by `make bench-call`: {machine()}. CPU time, {effort.rounds} interleaved rounds; every candidate stands between
two plain calls of its own round and is given as a ratio to them: the median, and in brackets the interval that holds
the true median in 95 of 100 runs. Everybody makes 3 attempts without waiting and tries `ValueError` again; `sleep` does
nothing and nobody logs, so that the machinery is compared. A target counts as missed only where the whole interval
misses it.

![Bars on a logarithmic scale: Redrive beside its peers](call.svg)
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


def _side_by_side(results: Results) -> Table:
    """One row for each library, its first form on every path."""
    timings = [*results.success.values(), *results.retry.values()]
    libraries = dict.fromkeys(c.library for t in timings for c in t.costs)
    rows = []
    for library in libraries:
        remains = results.first_left(library)
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
                _worst(r.cycles for r in remains),
                _worst(r.added for r in remains),
                _worst(r.nested for r in remains),
            )
        )
    columns = (
        "library",
        "success, sync",
        "success, async",
        "async time-out",
        "one retry, sync",
        "one retry, async",
        "import, ms",
        "cycles",
        "frames",
        "3 × 3 × 3",
    )
    note = (
        "Redrive with nested guard and shared budget, its import with `retry` and `RetryPolicy` loaded; of the others "
        "the plainest form, without a budget. Cycles: "
        "objects only the cyclic collector can free after a failed call; frames: added to its traceback; 3 × 3 × 3: "
        "calls made by three nested layers of three attempts, told to retry the library's own error where it has one."
    )
    return Table("Side by side", columns, rows, note)


def _statement(library: str) -> str:
    """What loads its retry; Redrive's bare import loads nothing yet, so its names are asked for."""
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
    return Table("Cold import, in a fresh interpreter", ("statement", "CPU ms", "ratio to tenacity", "modules"), rows)


def _remains(results: Results) -> Table:
    rows = [
        (f"{c.label}, {kind}", number(r.cycles), str(r.added), str(r.frames), str(r.nested), r.error)
        for (kind, c), r in results.remains.items()
    ]
    columns = ("case", "objects in cycles", "frames added", "frames in all", "calls of 3 × 3 × 3", "error")
    note = (
        "If the library raises its own error, frames are those of its traceback alone, and the three layers also retry "
        "that error. If they retry only `ValueError`, they make 3 calls."
    )
    return Table("What a call that failed three times leaves behind", columns, rows, note)


def _memory(results: Results) -> Table:
    rows = [(f"{c.label}, {kind}", number(round(size))) for (kind, c), size in results.memory.items()]
    note = "Sync: for each decorated function. Async: for each call in flight. Both on top of the plain one."
    return Table("Memory", ("case", "bytes"), rows, note)
