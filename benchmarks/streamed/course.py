"""The course of a run: the floors, ours and the peers, in interleaved rounds, each in a process and on a database of its own."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.apart import ROOT, apart, here
from benchmarks.durable.course import DURABLE, Databases, _fsync
from benchmarks.rounds import Progress
from benchmarks.streamed.results import BATCHES, PEERS, Peer, Results
from tests.servers.postgres import SETTINGS
from tests.servers.process import running, short_folder
from tests.servers.redis import HOW, program

MANY = "REDRIVE_BENCH_MESSAGES"
"""Environment: over how many messages memory is measured, and how many dead letters are piled up."""
ARQ = ROOT / ".venv-bench-arq" / "bin" / "python"
"""arq wants an older redis-py than the others."""
HERE = "benchmarks.streamed"
MODULES = {"taskiq": "taskiq_redis"}


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    messages: dict[int, int]
    """Of ours and of the floors, by batch."""
    share: float
    """Of the peers' messages."""
    grown: int
    letters: int
    settings: tuple[str, ...]
    """Of Postgres."""
    measured: Callable[..., Any] = apart


FULL = Effort(rounds=9, messages={100: 15_000, 1: 1000}, share=1.0, grown=50_000, letters=50_000, settings=DURABLE)
QUICK = Effort(rounds=1, messages={100: 200, 1: 10}, share=0.02, grown=200, letters=50, settings=SETTINGS, measured=here)


@contextmanager
def redis_with_log() -> Iterator[str]:
    """A server of our own that writes what it is told to the disk every second, as one that matters does."""
    found = program()
    if found is None:
        raise SystemExit(f"there is no Redis server: {HOW}")
    with short_folder() as folder:
        more = ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec", "--dir", str(folder)]
        command: list[str | Path] = [found, "--bind", "127.0.0.1", *more, "--port"]
        with running(lambda port: [*command, str(port)], ready=_answers, folder=folder) as port:
            yield f"redis://127.0.0.1:{port}/0"


def _answers(port: int) -> bool:
    import redis

    try:
        with redis.Redis(port=port) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def run(places: Databases, redis_url: str, effort: Effort, only: list[str], progress: Progress) -> Results:
    """Everything, or only what is named."""
    results = Results(fsync=_fsync(places.folder))
    if not only or "rounds" in only or "peers" in only:
        _rounds(places, redis_url, effort, only, results, progress)
    many = int(os.environ.get(MANY, "0"))
    for database in ("postgres", "sqlite"):
        if not only or "memory" in only:
            results.messages = many or effort.grown
            progress(f"{results.messages:,} messages, {database}")
            grown = effort.measured(f"{HERE}.memory", places.new(database), redis_url, str(results.messages))
            results.growth[database] = grown
        if not only or "letters" in only:
            results.pile = many or effort.letters
            progress(f"{results.pile:,} dead letters, {database}")
            found = effort.measured(f"{HERE}.letters", places.new(database), str(results.pile))
            results.letters |= {(database, what): taken for what, taken in found.items()}
    return results


def _rounds(places: Databases, redis_url: str, effort: Effort, only: list[str], results: Results, progress: Progress) -> None:
    acts: list[tuple[str, Callable[[], None]]] = []
    for batch in BATCHES:
        acts += [
            (f"{database}, {batch}", _sandwich(places, redis_url, database, batch, effort, results))
            for database in ("postgres", "sqlite")
        ]
        acts.append((f"bare, {batch}", _bare(redis_url, batch, effort, results)))
    if only and "rounds" not in only:
        acts = []
    if not only or "peers" in only:
        acts += [(peer.name, _peer(redis_url, peer, effort, results)) for peer in PEERS]
    for number in range(effort.rounds):
        for name, act in random.sample(acts, len(acts)):
            if name not in results.absent:
                progress(f"round {number + 1} of {effort.rounds}: {name}")
                act()


def _sandwich(
    places: Databases, redis_url: str, database: str, batch: int, effort: Effort, results: Results
) -> Callable[[], None]:
    def one(module: str) -> float:
        many = str(effort.messages[batch])
        found: float = effort.measured(f"{HERE}.{module}", places.new(database), redis_url, str(batch), many)
        return found

    def act() -> None:
        before = one("floor")
        results.pair(database, batch).add(before, one("own"), one("floor"))

    return act


def _bare(redis_url: str, batch: int, effort: Effort, results: Results) -> Callable[[], None]:
    def act() -> None:
        found = effort.measured(f"{HERE}.floor", "nowhere", redis_url, str(batch), str(effort.messages[batch]))
        results.bare.setdefault(batch, []).append(found)

    return act


def _peer(redis_url: str, peer: Peer, effort: Effort, results: Results) -> Callable[[], None]:
    def act() -> None:
        python: str | Path = ARQ if peer.library == "arq" else sys.executable
        there = ARQ.exists() if peer.library == "arq" else find_spec(MODULES.get(peer.library, peer.library)) is not None
        if not there:
            results.absent[peer.name] = "not installed"
            return
        try:
            many = str(max(20, int(peer.messages * effort.share)))
            found = apart(f"{HERE}.peer", peer.library, redis_url, str(peer.batch), many, python=python)
            results.peers.setdefault(peer.name, []).append(found)
        except RuntimeError as error:
            results.absent[peer.name] = str(error)
            results.peers.pop(peer.name, None)

    return act
