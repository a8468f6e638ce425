"""Measure jobs of ten steps, in interleaved rounds."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from benchmarks.isolation import run_inline, run_isolated
from benchmarks.ledger_suite.runner import DURABLE, Databases, measure_fsync
from benchmarks.rounds import Progress
from benchmarks.steps_suite.results import DBOS, DBOS_DEFAULT, DEFAULT_THREADS, SYNC, TEMPORAL, THREADS, Results
from tests.servers.postgres import SETTINGS

OWN = {
    SYNC: ("postgres", "sync", THREADS),
    "redrive on Postgres, default threads": ("postgres", "sync", DEFAULT_THREADS),
    "redrive on Postgres, async": ("postgres", "async", THREADS),
    "redrive on Postgres, in_transaction": ("postgres", "transaction", THREADS),
    "redrive on SQLite": ("sqlite", "sync", THREADS),
}
"""Database, command and number of threads by name."""


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    rounds: int
    jobs: int
    """Jobs of Redrive per measurement."""
    peers: int
    """Jobs of the other libraries, which are slower."""
    settings: tuple[str, ...]
    """Postgres settings."""
    measure: Callable[..., float] = run_isolated


FULL = Effort(rounds=7, jobs=1000, peers=150, settings=DURABLE)
QUICK = Effort(rounds=1, jobs=8, peers=3, settings=SETTINGS, measure=run_inline)


def run(databases: Databases, effort: Effort, progress: Progress) -> Results:
    """Measure everything. Each measurement has its own process and its own database."""
    results = Results(fsync=measure_fsync(databases.folder))
    measurements: dict[str, Callable[[], float]] = {}
    for name, (database, command, threads) in OWN.items():
        measurements[name] = _own(databases, database, command, threads, effort)
    if find_spec("dbos") is None:
        results.absent[DBOS] = "not installed"
    else:
        dbos = ("benchmarks.steps_suite.with_dbos", str(effort.peers))
        measurements[DBOS] = lambda: run_isolated(dbos[0], databases.new("postgres"), dbos[1], str(THREADS))
        measurements[DBOS_DEFAULT] = lambda: run_isolated(dbos[0], databases.new("postgres"), dbos[1])
    if find_spec("temporalio") is None:
        results.absent[TEMPORAL] = "not installed"
    else:
        measurements[TEMPORAL] = lambda: run_isolated("benchmarks.steps_suite.with_temporal", str(effort.peers))
    for number in range(effort.rounds):
        for name, measurement in random.sample(list(measurements.items()), len(measurements)):
            if name in results.absent:
                continue
            progress(f"round {number + 1} of {effort.rounds}: {name}")
            try:
                results.rates.setdefault(name, []).append(measurement())
            except RuntimeError as error:
                results.absent[name] = str(error)
                results.rates.pop(name, None)  # discard earlier figures of a case that fails
    return results


def _own(databases: Databases, database: str, command: str, threads: int, effort: Effort) -> Callable[[], float]:
    module = "benchmarks.steps_suite.own"
    return lambda: effort.measure(module, databases.new(database), command, str(effort.jobs), str(threads))
