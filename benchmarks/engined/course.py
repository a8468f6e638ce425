"""The course of a run: each broker by its own loop, by faststream and by ours, in interleaved rounds."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from benchmarks.apart import apart, here
from benchmarks.durable.course import DURABLE, Databases, _fsync
from benchmarks.engined.brokers import BROKERS
from benchmarks.engined.results import ALL, FAILURES, FASTSTREAM, LOOP, PROCESSES, Results
from benchmarks.rounds import Progress
from tests.servers.postgres import SETTINGS

START_SECONDS = 1.5
"""In which all processes of a measurement have started."""


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    messages: int
    processes: tuple[int, ...]
    settings: tuple[str, ...]
    """Of Postgres."""
    measured: Callable[..., Any] = apart


FULL = Effort(rounds=7, messages=10_000, processes=PROCESSES, settings=DURABLE)
QUICK = Effort(rounds=1, messages=200, processes=(1,), settings=SETTINGS, measured=here)


def run(places: Databases, effort: Effort, only: list[str], progress: Progress) -> Results:
    """Every broker, or only those that are named."""
    results = Results(fsync=_fsync(places.folder))
    for key, broker in BROKERS.items():
        if only and key not in only:
            continue
        if find_spec(broker.client) is None:
            results.absent[broker.name] = f"{broker.client} is not installed"
            continue
        ways = [(LOOP, 1), *((way, count) for way in (FAILURES, ALL) for count in effort.processes)]
        if find_spec("faststream") is not None and effort.measured is apart:
            ways.append((FASTSTREAM, 1))
        with broker.server() as address:
            for number in range(effort.rounds):
                for way, count in random.sample(ways, len(ways)):
                    progress(f"round {number + 1} of {effort.rounds}: {broker.name}, {way}, {count} processes")
                    name = f"{broker.name}, {way}"
                    if name in results.absent:
                        continue
                    try:
                        rate = _rate(places, key, address, way, count, effort)
                        results.rates.setdefault((key, way, count), []).append(rate)
                    except RuntimeError as error:
                        results.absent[name] = str(error)
    return results


def _rate(places: Databases, key: str, address: str, way: str, processes: int, effort: Effort) -> float:
    where = BROKERS[key].fill(address, effort.messages)
    ledger = places.new("postgres") if way in (FAILURES, ALL) else ""
    if ledger:
        from redrive.ledger import open_ledger

        open_ledger(ledger, migrate=True).close()
    start = 0.0 if effort.measured is here else time.time() + START_SECONDS
    arguments = ("benchmarks.engined.reader", key, where, way, str(effort.messages), str(start), ledger)
    with ThreadPoolExecutor(processes) as pool:
        told = list(pool.map(lambda _: effort.measured(*arguments), range(processes)))
    read = [each for each in told if each[2]]
    handled: int = sum(count for _, _, count in read)
    if handled < effort.messages:
        raise RuntimeError(f"only {handled} of {effort.messages} messages")
    seconds: float = max(last for _, last, _ in read) - min(first for first, _, _ in read)
    return handled / max(seconds, 1e-6)
