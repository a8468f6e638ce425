"""Measure each operation with ledgers of several sizes, in interleaved rounds."""

import os
import random
import resource
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.console_suite.fill import fill
from benchmarks.ledger_suite import tenants
from benchmarks.ledger_suite.backlog import BATCH, time_claims
from benchmarks.ledger_suite.drain import analyze
from benchmarks.ledger_suite.runner import DURABLE, Databases, measure_fsync
from benchmarks.rounds import Progress
from benchmarks.scale_suite import fleet
from benchmarks.scale_suite.operations import CLAIMS, KIND, insert_events, median_ms, operations
from benchmarks.scale_suite.results import (
    CLAIM,
    DATABASES,
    EMPTY_COMMANDS,
    FAIR_CLAIM,
    PAYLOADS,
    ROWS,
    TENANTS,
    TYPES,
    WHOLE,
    WORKERS,
    Curve,
    Results,
)
from redrive.ledger import Ledger, NewJob, open_ledger
from tests.servers.postgres import SETTINGS

ROWS_VARIABLE = "REDRIVE_BENCH_SCALE"
"""Environment variable: rows of one more, larger ledger."""


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    rounds: int
    repetitions: int
    rows: tuple[int, ...]
    types: tuple[int, ...]
    tenants: tuple[int, ...]
    jobs: int
    """Due jobs of the ledgers with tenants."""
    payloads: tuple[int, ...]
    """Bytes."""
    workers: tuple[int, ...]
    commands: int
    """Commands of a measurement with several workers."""
    settings: tuple[str, ...]
    """Postgres settings."""


FULL = Effort(
    rounds=7,
    repetitions=21,
    rows=(100_000, 1_000_000, 3_000_000),
    types=(1, 100, 10_000),
    tenants=(1, 1_000, 1_000_000),
    jobs=1_000_000,
    payloads=(1_000, 10_000, 100_000, 1_000_000),
    workers=(1, 2, 4, 8, 16),
    commands=60_000,
    settings=DURABLE,
)
QUICK = Effort(
    rounds=1,
    repetitions=1,
    rows=(50, 100),
    types=(1, 5),
    tenants=(1, 5),
    jobs=200,
    payloads=(10, 100),
    workers=(1, 2),
    commands=3_000,
    settings=SETTINGS,
)


def run(databases: Databases, effort: Effort, only: list[str], progress: Progress) -> Results:
    """Measure everything, or only the named parts."""
    results = Results(fsync=measure_fsync(databases.folder))
    # Payloads first: their memory is the maximum of the process.
    parts: dict[str, Callable[..., None]] = {PAYLOADS: _payloads, ROWS: _rows, TYPES: _types, TENANTS: _tenants}
    for part, measure in parts.items():
        for database in DATABASES if not only or part in only else ():
            measure(databases, database, effort, results, progress)
    if not only or WORKERS in only:
        _workers(databases, effort, results, progress)
    return results


def _new(databases: Databases, database: str, stack: ExitStack) -> tuple[str, Ledger]:
    url = databases.new(database.lower())
    stack.callback(databases.drop, url)
    return url, stack.enter_context(open_ledger(url, migrate=True))


def _rows(databases: Databases, database: str, effort: Effort, results: Results, progress: Progress) -> None:
    largest = int(os.environ.get(ROWS_VARIABLE, "0"))
    with ExitStack() as stack:
        functions: dict[int, dict[str, Callable[[], float]]] = {}
        for size in (*effort.rows, *([largest] if largest else ())):
            progress(f"{database}: {size:,} jobs, dead letters, events and partitions")
            url, ledger = _new(databases, database, stack)
            fill(ledger, size)
            insert_events(ledger, size)
            analyze(ledger)
            functions[size] = stack.enter_context(operations(url, ledger, effort.repetitions))
        for name in functions[effort.rows[0]]:
            for number in range(effort.rounds):
                progress(f"{database}: {name}, round {number + 1} of {effort.rounds}")
                for size in _shuffled(functions):
                    results.curve(ROWS, database, name).add(size, functions[size][name]())


def _types(databases: Databases, database: str, effort: Effort, results: Results, progress: Progress) -> None:
    with ExitStack() as stack:
        claims: dict[int, Callable[[], float]] = {}
        for number in effort.types:
            progress(f"{database}: {number:,} job types")
            _, ledger = _new(databases, database, stack)
            claims[number] = partial(_claim_of_types, ledger, number)
        _measure(results.curve(TYPES, database, CLAIM), claims, effort)


def _claim_of_types(ledger: Ledger, number: int) -> float:
    """Return the median milliseconds of a claim of 100 jobs, of as many types as there are."""
    kinds = [f"{KIND}.{each}" for each in range(number)]
    stamp = time.time_ns()
    for at in range(0, CLAIMS * BATCH, BATCH):
        ledger.submit_many([NewJob(kinds[each * 7919 % number], f"{stamp}-{each}", b"{}") for each in range(at, at + BATCH)])
    analyze(ledger)
    return time_claims(ledger, dict.fromkeys(kinds, BATCH), CLAIMS, total=BATCH)


def _tenants(databases: Databases, database: str, effort: Effort, results: Results, progress: Progress) -> None:
    with ExitStack() as stack:
        claims: dict[int, Callable[[], float]] = {}
        for number in effort.tenants:
            progress(f"{database}: {effort.jobs:,} jobs of {number:,} tenants")
            _, ledger = _new(databases, database, stack)
            tenants.insert_jobs(ledger, number, effort.jobs)
            claims[number] = partial(tenants.measure_claims, ledger, number, CLAIMS)
        _measure(results.curve(TENANTS, database, FAIR_CLAIM), claims, effort)


def _payloads(databases: Databases, database: str, effort: Effort, results: Results, progress: Progress) -> None:
    with ExitStack() as stack:
        progress(f"{database}: payloads")
        _, ledger = _new(databases, database, stack)
        whole = {size: partial(_whole_job, ledger, b"x" * size, effort.repetitions) for size in effort.payloads}
        for size, action in whole.items():  # the smallest first: the maximum of the process is that of this size
            for _ in range(effort.rounds):
                results.curve(PAYLOADS, database, WHOLE).add(size, action())
            results.memory.setdefault((PAYLOADS, database, size), []).append(_memory())


def _whole_job(ledger: Ledger, payload: bytes, times: int) -> float:
    def submit_claim_settle() -> None:
        ledger.submit(NewJob(KIND, f"{len(payload)}-{time.time_ns()}", payload))
        (lease,) = ledger.claim({KIND: 1}, worker="bench")
        ledger.settle(lease.done())

    return median_ms(submit_claim_settle, times)


def _workers(databases: Databases, effort: Effort, results: Results, progress: Progress) -> None:
    for number in range(effort.rounds):
        for processes in _shuffled(effort.workers):
            progress(f"{processes} worker processes, round {number + 1} of {effort.rounds}")
            url = databases.new("postgres")
            figures = fleet.measure(url, processes, effort.commands)
            databases.drop(url)
            results.curve(WORKERS, "Postgres", EMPTY_COMMANDS).add(processes, max(figures.rate, 1.0))
            results.memory.setdefault((WORKERS, "Postgres", processes), []).append(figures.memory)
            results.connections.setdefault((WORKERS, "Postgres", processes), []).append(figures.connections)


def _measure(curve: Curve, functions: dict[int, Callable[[], float]], effort: Effort) -> None:
    for _ in range(effort.rounds):
        for size in _shuffled(functions):
            curve.add(size, functions[size]())


def _shuffled(sizes: Iterable[int]) -> list[int]:
    each = list(sizes)
    return random.sample(each, len(each))


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
