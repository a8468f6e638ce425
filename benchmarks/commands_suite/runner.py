"""Measure commands per second and the latency to their start, in interleaved rounds."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from benchmarks.commands_suite.results import ASYNC, OURS, SYNC, Case, Results
from benchmarks.isolation import run_inline, run_isolated
from benchmarks.ledger_suite.peers import PEERS, Peer
from benchmarks.ledger_suite.runner import DURABLE, Databases, measure_fsync
from benchmarks.rounds import Progress
from tests.servers.postgres import SETTINGS

LATENCIES = (
    ("redrive", "postgres", OURS), ("redrive", "sqlite", OURS), ("dbos", "postgres", "DBOS queue, polls every 50 ms"),
    ("procrastinate", "postgres", "procrastinate"), ("pgqueuer", "postgres", "pgqueuer"), ("huey", "sqlite", "huey with fsync"),
)  # fmt: skip


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    rounds: int
    jobs: int
    """Commands of Redrive per measurement."""
    jobs_of_20_ms: int
    """Fewer, because 8 threads run at most 400 per second."""
    share: float
    """Fraction of the jobs of other libraries."""
    times: int
    settings: tuple[str, ...]
    """Postgres settings."""
    measure: Callable[..., float] = run_isolated


FULL = Effort(rounds=7, jobs=6000, jobs_of_20_ms=1200, share=1.0, times=40, settings=DURABLE)
QUICK = Effort(rounds=1, jobs=20, jobs_of_20_ms=8, share=0.02, times=1, settings=SETTINGS, measure=run_inline)


def run(databases: Databases, effort: Effort, progress: Progress) -> Results:
    """Measure everything. Each measurement has its own process and its own database."""
    results = Results(fsync=measure_fsync(databases.folder))
    measurements: list[tuple[str, Callable[[], float], list[float]]] = []
    for name, command in ((SYNC, "sync"), (ASYNC, "async")):
        for database in ("postgres", "sqlite"):
            figures = results.rates.setdefault(Case(name, database), [])
            measurements.append((f"{name}, {database}", _own(databases, database, command, effort, effort.jobs), figures))
            figures = results.of_20_ms.setdefault(Case(name, database), [])
            measurement = _own(databases, database, f"{command}-20ms", effort, effort.jobs_of_20_ms)
            measurements.append((f"{name}, commands of 20 ms, {database}", measurement, figures))
    for peer in PEERS:
        if find_spec(peer.library) is None:
            results.absent[peer.name] = "not installed"
        elif peer.batch > 1 or peer.database == "sqlite":
            figures = results.rates.setdefault(Case(peer.name, peer.database), [])
            measurements.append((peer.name, partial(_peer, databases, peer, effort), figures))
    for library, database, name in LATENCIES:
        if find_spec(library) is not None:
            figures = results.latencies.setdefault(Case(name, database), [])
            measurements.append((f"latency of {name}, {database}", _latency(databases, library, database, effort), figures))
    for number in range(effort.rounds):
        for name, measurement, figures in random.sample(measurements, len(measurements)):
            if name in results.absent:
                continue
            progress(f"round {number + 1} of {effort.rounds}: {name}")
            try:
                figures.append(measurement())
            except RuntimeError as error:
                results.absent[name] = str(error)
                figures.clear()  # discard earlier figures of a case that fails
    return results


def _peer(databases: Databases, peer: Peer, effort: Effort) -> float:
    return peer.rate(databases.new(peer.database), effort.share)


def _own(databases: Databases, database: str, command: str, effort: Effort, jobs: int) -> Callable[[], float]:
    return lambda: effort.measure("benchmarks.commands_suite.own", databases.new(database), command, str(jobs))


def _latency(databases: Databases, library: str, database: str, effort: Effort) -> Callable[[], float]:
    return lambda: effort.measure("benchmarks.commands_suite.latency", library, databases.new(database), str(effort.times))
