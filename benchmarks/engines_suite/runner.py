"""Measure each broker with the loop of its client, with faststream and with Redrive, in interleaved rounds."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from benchmarks.engines_suite.board import NOT_READY, READING, STOPPED, Board, wait_until
from benchmarks.engines_suite.brokers import BROKERS
from benchmarks.engines_suite.reader import MAX_SECONDS
from benchmarks.engines_suite.results import ALL, FAILURES, FASTSTREAM, FLOOR, LOOP, PROCESSES, SQLITE, Results
from benchmarks.isolation import run_inline, run_isolated
from benchmarks.ledger_suite.runner import DURABLE, Databases, measure_fsync
from benchmarks.rounds import Progress
from tests.servers.postgres import SETTINGS

READY_SECONDS = 40.0
"""Time for all processes of a measurement to start, and to join the group of a Kafka topic."""


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    rounds: int
    """Rounds with one process."""
    more_rounds: int
    """Rounds that measure several processes and the ledger, too."""
    messages: int | None
    """Messages of a measurement. None: enough for about a second, by broker."""
    stored: int
    """Messages, if each is stored."""
    processes: tuple[int, ...]
    settings: tuple[str, ...]
    """Postgres settings."""
    measure: Callable[..., Any] = run_isolated


FULL = Effort(rounds=4, more_rounds=2, messages=None, stored=10_000, processes=PROCESSES, settings=DURABLE)
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
    broker = BROKERS[key]
    messages = broker.peer_messages if method == FASTSTREAM else broker.messages
    if method in (ALL, SQLITE):
        messages = effort.stored
    messages = effort.messages or messages
    stream = broker.fill(address, messages)
    ledger = "" if method in (LOOP, FLOOR, FASTSTREAM) else databases.new("sqlite" if method == SQLITE else "postgres")
    if ledger:
        from redrive.ledger import open_ledger

        open_ledger(ledger, migrate=True).close()
    board = Board.create(databases.folder / "board", processes)
    arguments = ("benchmarks.engines_suite.reader", key, stream, method, str(messages), str(databases.folder / "board"))
    with ThreadPoolExecutor(processes) as pool:
        running = [pool.submit(effort.measure, *arguments, str(number), ledger) for number in range(processes)]

        def has_failed() -> bool:
            return any(each.done() for each in running)

        is_ready = wait_until(lambda: NOT_READY not in board.counts or has_failed(), READY_SECONDS)
        board.phase = READING
        if is_ready:
            wait_until(lambda: sum(board.counts) >= messages or has_failed(), MAX_SECONDS)
        board.phase = STOPPED
        read = [each for each in [done.result() for done in running] if each[2]]
    if not read:
        raise RuntimeError("no messages were handled" if is_ready else "the processes were not ready in time")
    seconds: float = max(last for _, last, _ in read) - min(first for first, _, _ in read)
    handled: int = sum(count for _, _, count in read)
    return handled / max(seconds, 1e-6)
