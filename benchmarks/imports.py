"""Cold imports: a fresh interpreter each time, round after round, CPU time of the import alone."""

import os
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.interval import Interval
from benchmarks.rounds import Effort, Progress

CODE = """\
import sys, time
known = len(sys.modules)
start = time.process_time_ns()
{statement}
print(time.process_time_ns() - start, len(sys.modules) - known)
"""


@dataclass(frozen=True)
class Import:
    """One import statement."""

    milliseconds: Interval
    ratio: Interval | None
    """To the yardstick's import of the same round; None where that is not installed."""
    modules: int


def cold(statements: list[str], yardstick: str, effort: Effort, progress: Progress) -> tuple[dict[str, Import], dict[str, str]]:
    """What each import statement costs, and why some could not be measured. `yardstick` is one of them."""
    failed: dict[str, str] = {}
    spent: dict[str, list[float]] = {statement: [] for statement in statements}
    modules: dict[str, int] = {}
    for n in range(effort.processes + 1):
        progress(f"Cold import: round {n} of {effort.processes}")
        for statement in statements:
            if statement in failed:
                continue
            try:
                nanoseconds, added = _import(statement)
            except RuntimeError as error:
                failed[statement] = str(error)
                continue
            modules[statement] = added
            if n:  # the first round fills the page cache and writes the bytecode
                spent[statement].append(nanoseconds / 1e6)
    base = spent.get(yardstick) if yardstick not in failed else None
    found: dict[str, Import] = {}
    for statement, samples in spent.items():
        if statement in failed:
            continue
        ratio = Interval.of([own / other for own, other in zip(samples, base, strict=True)]) if base else None
        found[statement] = Import(Interval.of(samples), ratio, modules[statement])
    return dict(sorted(found.items(), key=lambda item: item[1].milliseconds.median)), failed


def _import(statement: str) -> tuple[int, int]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-P", "-c", CODE.format(statement=statement)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    nanoseconds, modules = done.stdout.split()
    return int(nanoseconds), int(modules)
