"""CPU time of cold imports, each in a new interpreter."""

import os
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.interval import Interval
from benchmarks.rounds import Effort, Progress

CODE = """\
import sys, time
before = len(sys.modules)
start = time.process_time_ns()
{statement}
print(time.process_time_ns() - start, len(sys.modules) - before)
"""


@dataclass(frozen=True)
class Import:
    """Cost of an import statement."""

    milliseconds: Interval
    ratio: Interval | None
    """Ratio to the reference import in the same round, or None if that is not installed."""
    modules: int


def measure(
    statements: list[str], reference: str, effort: Effort, progress: Progress
) -> tuple[dict[str, Import], dict[str, str]]:
    """Measure import statements. `reference` is one of them.

    Returns:
        The cost of each statement, and the reasons why others failed.
    """
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
    base = spent.get(reference) if reference not in failed else None
    costs: dict[str, Import] = {}
    for statement, samples in spent.items():
        if statement in failed:
            continue
        ratio = Interval.of([own / other for own, other in zip(samples, base, strict=True)]) if base else None
        costs[statement] = Import(Interval.of(samples), ratio, modules[statement])
    return dict(sorted(costs.items(), key=lambda item: item[1].milliseconds.median)), failed


def _import(statement: str) -> tuple[int, int]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-P", "-c", CODE.format(statement=statement)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    nanoseconds, modules = done.stdout.split()
    return int(nanoseconds), int(modules)
