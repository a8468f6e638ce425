"""Measure minimal consumers, Redrive and other libraries, in interleaved rounds."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.isolation import ROOT, run_inline, run_isolated
from benchmarks.ledger_suite.runner import DURABLE, Databases, measure_fsync
from benchmarks.messages_suite.results import BATCHES, PEERS, Peer, Results
from benchmarks.rounds import Progress
from tests.servers.postgres import SETTINGS
from tests.servers.process import running, short_folder
from tests.servers.redis import HOW, program

MESSAGES_VARIABLE = "REDRIVE_BENCH_MESSAGES"
"""Environment variable: number of messages for the memory growth, and number of dead letters."""
ARQ = ROOT / ".venv-bench-arq" / "bin" / "python"
"""arq needs an older redis-py than the others."""
PACKAGE = "benchmarks.messages_suite"
MODULES = {"taskiq": "taskiq_redis"}


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    rounds: int
    messages: dict[int, int]
    """Number of messages by batch size, for Redrive and the minimal consumers."""
    share: float
    """Fraction of the messages of other libraries."""
    memory_messages: int
    dead_letters: int
    settings: tuple[str, ...]
    """Postgres settings."""
    measure: Callable[..., Any] = run_isolated


FULL = Effort(rounds=9, messages={100: 15_000, 1: 1000}, share=1.0, memory_messages=50_000, dead_letters=50_000, settings=DURABLE)
QUICK = Effort(
    rounds=1, messages={100: 200, 1: 10}, share=0.02, memory_messages=200, dead_letters=50, settings=SETTINGS, measure=run_inline
)


@contextmanager
def redis_with_log() -> Iterator[str]:
    """Start a Redis server that syncs its log to disk every second, as in production."""
    executable = program()
    if executable is None:
        raise SystemExit(f"Redis server not found: {HOW}")
    with short_folder() as folder:
        options = ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec", "--dir", str(folder)]
        command: list[str | Path] = [executable, "--bind", "127.0.0.1", *options, "--port"]
        with running(lambda port: [*command, str(port)], ready=_is_ready, folder=folder) as port:
            yield f"redis://127.0.0.1:{port}/0"


def _is_ready(port: int) -> bool:
    import redis

    try:
        with redis.Redis(port=port) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def run(databases: Databases, redis_url: str, effort: Effort, only: list[str], progress: Progress) -> Results:
    """Measure everything, or only the named parts."""
    results = Results(fsync=measure_fsync(databases.folder))
    if not only or "rounds" in only or "peers" in only:
        _rounds(databases, redis_url, effort, only, results, progress)
    count = int(os.environ.get(MESSAGES_VARIABLE, "0"))
    for database in ("postgres", "sqlite"):
        if not only or "memory" in only:
            results.messages = count or effort.memory_messages
            progress(f"{results.messages:,} messages, {database}")
            growth = effort.measure(f"{PACKAGE}.memory", databases.new(database), redis_url, str(results.messages))
            results.growth[database] = growth
        if not only or "dead_letters" in only:
            results.stored = count or effort.dead_letters
            progress(f"{results.stored:,} dead letters, {database}")
            times = effort.measure(f"{PACKAGE}.dead_letters", databases.new(database), str(results.stored))
            results.dead_letters |= {(database, query): milliseconds for query, milliseconds in times.items()}
    return results


def _rounds(databases: Databases, redis_url: str, effort: Effort, only: list[str], results: Results, progress: Progress) -> None:
    measurements: list[tuple[str, Callable[[], None]]] = []
    for batch in BATCHES:
        measurements += [
            (f"{database}, {batch}", _measure_pair(databases, redis_url, database, batch, effort, results))
            for database in ("postgres", "sqlite")
        ]
        measurements.append((f"bare, {batch}", _bare(redis_url, batch, effort, results)))
    if only and "rounds" not in only:
        measurements = []
    if not only or "peers" in only:
        measurements += [(peer.name, _peer(redis_url, peer, effort, results)) for peer in PEERS]
    for number in range(effort.rounds):
        for name, measurement in random.sample(measurements, len(measurements)):
            if name not in results.absent:
                progress(f"round {number + 1} of {effort.rounds}: {name}")
                measurement()


def _measure_pair(
    databases: Databases, redis_url: str, database: str, batch: int, effort: Effort, results: Results
) -> Callable[[], None]:
    def measure(module: str) -> float:
        messages = str(effort.messages[batch])
        url = databases.new(database)
        rate: float = effort.measure(f"{PACKAGE}.{module}", url, redis_url, str(batch), messages)
        databases.drop(url)
        return rate

    def measurement() -> None:
        before = measure("floor")
        results.pair(database, batch).add(before, measure("own"), measure("floor"))

    return measurement


def _bare(redis_url: str, batch: int, effort: Effort, results: Results) -> Callable[[], None]:
    def measurement() -> None:
        rate = effort.measure(f"{PACKAGE}.floor", "none", redis_url, str(batch), str(effort.messages[batch]))
        results.bare.setdefault(batch, []).append(rate)

    return measurement


def _peer(redis_url: str, peer: Peer, effort: Effort, results: Results) -> Callable[[], None]:
    def measurement() -> None:
        python: str | Path = ARQ if peer.library == "arq" else sys.executable
        installed = ARQ.exists() if peer.library == "arq" else find_spec(MODULES.get(peer.library, peer.library)) is not None
        if not installed:
            results.absent[peer.name] = "not installed"
            return
        try:
            messages = str(max(20, int(peer.messages * effort.share)))
            rate = run_isolated(f"{PACKAGE}.peer", peer.library, redis_url, str(peer.batch), messages, python=python)
            results.peers.setdefault(peer.name, []).append(rate)
        except RuntimeError as error:
            results.absent[peer.name] = str(error)
            results.peers.pop(peer.name, None)

    return measurement
