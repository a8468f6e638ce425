"""The course of a run: who works commands off, and how soon each begins, in interleaved rounds."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from benchmarks.apart import apart, here
from benchmarks.commanded.results import ASYNC, OURS, PLAIN, Case, Results
from benchmarks.durable.course import DURABLE, Databases, _fsync
from benchmarks.durable.peers import PEERS, Peer
from benchmarks.rounds import Progress
from tests.servers.postgres import SETTINGS

LATENCIES = (
    ("redrive", "postgres", OURS), ("redrive", "sqlite", OURS), ("dbos", "postgres", "DBOS queue, polls every 50 ms"),
    ("procrastinate", "postgres", "procrastinate"), ("pgqueuer", "postgres", "pgqueuer"), ("huey", "sqlite", "huey with fsync"),
)  # fmt: skip


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    jobs: int
    """Of ours, in one measurement."""
    jobs_of_20_ms: int
    """Fewer: 8 threads run at most 400 in a second."""
    share: float
    """Of the peers' jobs."""
    times: int
    settings: tuple[str, ...]
    """Of Postgres."""
    measured: Callable[..., float] = apart


FULL = Effort(rounds=7, jobs=6000, jobs_of_20_ms=1200, share=1.0, times=40, settings=DURABLE)
QUICK = Effort(rounds=1, jobs=20, jobs_of_20_ms=8, share=0.02, times=1, settings=SETTINGS, measured=here)


def run(places: Databases, effort: Effort, progress: Progress) -> Results:
    """Everything, each in a process and on a database of its own."""
    results = Results(fsync=_fsync(places.folder))
    acts: list[tuple[str, Callable[[], float], list[float]]] = []
    for name, colour in ((PLAIN, "plain"), (ASYNC, "async")):
        for database in ("postgres", "sqlite"):
            kept = results.rates.setdefault(Case(name, database), [])
            acts.append((f"{name}, {database}", _own(places, database, colour, effort, effort.jobs), kept))
            kept = results.of_20_ms.setdefault(Case(name, database), [])
            act = _own(places, database, f"{colour}-20ms", effort, effort.jobs_of_20_ms)
            acts.append((f"{name}, commands of 20 ms, {database}", act, kept))
    for peer in PEERS:
        if find_spec(peer.library) is None:
            results.absent[peer.name] = "not installed"
        elif peer.batch > 1 or peer.database == "sqlite":
            kept = results.rates.setdefault(Case(peer.name, peer.database), [])
            acts.append((peer.name, partial(_peer, places, peer, effort), kept))
    for library, database, name in LATENCIES:
        if find_spec(library) is not None:
            kept = results.latencies.setdefault(Case(name, database), [])
            acts.append((f"latency of {name}, {database}", _latency(places, library, database, effort), kept))
    for number in range(effort.rounds):
        for name, act, kept in random.sample(acts, len(acts)):
            if name in results.absent:
                continue
            progress(f"round {number + 1} of {effort.rounds}: {name}")
            try:
                kept.append(act())
            except RuntimeError as error:
                results.absent[name] = str(error)
                kept.clear()  # one that failed once is not measured: what it did before is no figure
    return results


def _peer(places: Databases, peer: Peer, effort: Effort) -> float:
    return peer.rate(places.new(peer.database), effort.share)


def _own(places: Databases, database: str, command: str, effort: Effort, jobs: int) -> Callable[[], float]:
    return lambda: effort.measured("benchmarks.commanded.own", places.new(database), command, str(jobs))


def _latency(places: Databases, library: str, database: str, effort: Effort) -> Callable[[], float]:
    return lambda: effort.measured("benchmarks.commanded.latency", library, places.new(database), str(effort.times))
