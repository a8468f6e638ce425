"""Measure each broker with the loop of its client, with faststream and with Redrive, in interleaved rounds."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from benchmarks.engines_suite.brokers import BROKERS
from benchmarks.engines_suite.results import ALL, FAILURES, FASTSTREAM, FLOOR, LOOP, PROCESSES, SQLITE, Results
from benchmarks.isolation import run_inline, run_isolated
from benchmarks.ledger_suite.runner import DURABLE, Databases, measure_fsync
from benchmarks.rounds import Progress
from tests.servers.postgres import SETTINGS

START_SECONDS = 1.2
"""Time for one process to start."""
MORE_SECONDS = 0.4
"""The same for each other process of a measurement."""


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    rounds: int
    """Rounds with one process."""
    more_rounds: int
    """Rounds that measure several processes and the ledger, too."""
    messages: int
    stored: int
    """Messages, if each is stored."""
    processes: tuple[int, ...]
    settings: tuple[str, ...]
    """Postgres settings."""
    measure: Callable[..., Any] = run_isolated


FULL = Effort(rounds=6, more_rounds=2, messages=20_000, stored=2_000, processes=PROCESSES, settings=DURABLE)
QUICK = Effort(rounds=1, more_rounds=1, messages=200, stored=200, processes=(1,), settings=SETTINGS, measure=run_inline)


def run(databases: Databases, effort: Effort, only: list[str], progress: Progress) -> Results:
    """Measure all brokers, or only the named ones."""
    results = Results(fsync=measure_fsync(databases.folder))
    for key, broker in BROKERS.items():
        if only and key not in only:
            continue
        if find_spec(broker.client) is None:
            results.absent[broker.name] = f"{broker.client} is not installed"
            continue
        methods = [(LOOP, 1), (FLOOR, 1), (FAILURES, 1)]
        if find_spec("faststream") is not None and effort.measure is run_isolated:
            methods.append((FASTSTREAM, 1))
        more = [(FAILURES, count) for count in effort.processes if count > 1]
        more += [(SQLITE, 1), *((ALL, count) for count in effort.processes)]
        with broker.server() as address:
            for number in range(effort.rounds):
                chosen = [*methods, *(more if number < effort.more_rounds else ())]
                for method, count in random.sample(chosen, len(chosen)):
                    progress(f"round {number + 1} of {effort.rounds}: {broker.name}, {method}, {count} processes")
                    name = f"{broker.name}, {method}"
                    if name in results.absent:
                        continue
                    try:
                        rate = _rate(databases, key, address, method, count, effort)
                        results.rates.setdefault((key, method, count), []).append(rate)
                    except RuntimeError as error:
                        results.absent[name] = str(error)
    return results


def _rate(databases: Databases, key: str, address: str, method: str, processes: int, effort: Effort) -> float:
    messages = effort.stored if method in (ALL, SQLITE) else effort.messages
    stream = BROKERS[key].fill(address, messages)
    ledger = "" if method in (LOOP, FLOOR, FASTSTREAM) else databases.new("sqlite" if method == SQLITE else "postgres")
    if ledger:
        from redrive.ledger import open_ledger

        open_ledger(ledger, migrate=True).close()
    start = 0.0 if effort.measure is run_inline else time.time() + START_SECONDS + MORE_SECONDS * (processes - 1)
    arguments = ("benchmarks.engines_suite.reader", key, stream, method, str(messages), str(start), ledger)
    with ThreadPoolExecutor(processes) as pool:
        reports = list(pool.map(lambda _: effort.measure(*arguments), range(processes)))
    read = [each for each in reports if each[2]]
    handled: int = sum(count for _, _, count in read)
    if handled < messages:
        raise RuntimeError(f"only {handled} of {messages} messages")
    seconds: float = max(last for _, last, _ in read) - min(first for first, _, _ in read)
    return handled / max(seconds, 1e-6)
