"""The course of a run: who does jobs of ten steps, in interleaved rounds."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from benchmarks.apart import apart, here
from benchmarks.durable.course import DURABLE, Databases, _fsync
from benchmarks.rounds import Progress
from benchmarks.stepped.results import DBOS, DBOS_DEFAULT, DEFAULT_THREADS, SYNC, TEMPORAL, THREADS, Results
from tests.servers.postgres import SETTINGS

OWN = {
    SYNC: ("postgres", "sync", THREADS),
    "redrive on Postgres, default threads": ("postgres", "sync", DEFAULT_THREADS),
    "redrive on Postgres, async": ("postgres", "async", THREADS),
    "redrive on Postgres, in_transaction": ("postgres", "transaction", THREADS),
    "redrive on SQLite": ("sqlite", "sync", THREADS),
}
"""Database, command and threads by name."""


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    jobs: int
    """Of ours, in one measurement."""
    peers: int
    """Of the peers, which are slower."""
    settings: tuple[str, ...]
    """Of Postgres."""
    measured: Callable[..., float] = apart


FULL = Effort(rounds=7, jobs=1000, peers=150, settings=DURABLE)
QUICK = Effort(rounds=1, jobs=8, peers=3, settings=SETTINGS, measured=here)


def run(places: Databases, effort: Effort, progress: Progress) -> Results:
    """Everything, each in a process and on a database of its own."""
    results = Results(fsync=_fsync(places.folder))
    acts: dict[str, Callable[[], float]] = {}
    for name, (database, command, threads) in OWN.items():
        acts[name] = _own(places, database, command, threads, effort)
    if find_spec("dbos") is None:
        results.absent[DBOS] = "not installed"
    else:
        dbos = ("benchmarks.stepped.with_dbos", str(effort.peers))
        acts[DBOS] = lambda: apart(dbos[0], places.new("postgres"), dbos[1], str(THREADS))
        acts[DBOS_DEFAULT] = lambda: apart(dbos[0], places.new("postgres"), dbos[1])
    if find_spec("temporalio") is None:
        results.absent[TEMPORAL] = "not installed"
    else:
        acts[TEMPORAL] = lambda: apart("benchmarks.stepped.with_temporal", str(effort.peers))
    for number in range(effort.rounds):
        for name, act in random.sample(list(acts.items()), len(acts)):
            if name in results.absent:
                continue
            progress(f"round {number + 1} of {effort.rounds}: {name}")
            try:
                results.rates.setdefault(name, []).append(act())
            except RuntimeError as error:
                results.absent[name] = str(error)
                results.rates.pop(name, None)  # one that failed once is not measured
    return results


def _own(places: Databases, database: str, command: str, threads: int, effort: Effort) -> Callable[[], float]:
    module = "benchmarks.stepped.own"
    return lambda: effort.measured(module, places.new(database), command, str(effort.jobs), str(threads))
