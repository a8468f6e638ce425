"""Measure a successful call, an increment, and 10,000 items of which 1 % are rejected."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy
from sqlalchemy import Engine

from benchmarks.batch_suite import sender
from benchmarks.batch_suite.provider import provider
from benchmarks.batch_suite.sender import Sender, table_items
from benchmarks.interval import Interval
from benchmarks.ledger_suite.results import Pair
from benchmarks.ledger_suite.runner import DURABLE, Databases
from benchmarks.rounds import Progress
from redrive import App, RetryPolicy
from redrive.batch import Items, ItemStatus, Report, retrying
from redrive.testing import instant
from tests.servers.postgres import SETTINGS

STORES = ("ledger", "table")
NAMES = {"ledger": "app.items", "table": "TableItems"}


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    rounds: int
    items: int
    calls: int
    increments: int
    settings: tuple[str, ...] = DURABLE


FULL = Effort(rounds=11, items=10_000, calls=200, increments=300)
QUICK = Effort(rounds=1, items=300, calls=3, increments=10, settings=SETTINGS)


@dataclass
class Results:
    """Figures by store."""

    success: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """Overhead of a successful call in milliseconds, by store and number of items."""
    increments: dict[str, list[list[float]]] = field(default_factory=dict)
    """Milliseconds of each increment by round. `bare` is the statement with psycopg."""
    one_pass: dict[str, Pair] = field(default_factory=dict)
    """Seconds of a call with one pass: the bare sender and Redrive."""
    shares: dict[str, list[float]] = field(default_factory=dict)
    """Ratio of the seconds in the layer to those in the sender, for four passes without waits."""
    items: int = 0

    def p99(self, store: str) -> Interval | None:
        rounds = self.increments.get(store)
        return Interval.of([percentile(samples, 0.99) for samples in rounds]) if rounds else None


def percentile(samples: list[float], share: float) -> float:
    """Return the percentile of samples. `share` is 0.99 for p99."""
    return sorted(samples)[min(len(samples) - 1, round(share * len(samples)))]


def run(databases: Databases, effort: Effort, progress: Progress) -> Results:
    """Measure everything on Postgres."""
    results = Results(items=effort.items)
    url = databases.new("postgres")
    with App(url, migrate=True) as app, _engine(url) as engine, provider() as port, ExitStack() as stack:
        sender.create_table(engine, effort.items)
        stores: dict[str, Items] = {"ledger": app.items("tiles"), "table": table_items(engine)}
        for store, items in stores.items():
            progress(f"Successful calls, {NAMES[store]}")
            for count in (1, effort.items):
                results.success[store, count] = _measure_success(
                    items, count, effort.calls if count == 1 else max(3, effort.calls // 10)
                )
        for number in range(effort.rounds):
            progress(f"Increments, round {number + 1} of {effort.rounds}")
            ids = [f"tile-{n % effort.items + 1:06}" for n in range(effort.increments)]
            for store, increment in {
                "bare": _bare_increment(stack, url),
                **{name: items.increment for name, items in stores.items()},
            }.items():
                results.increments.setdefault(store, []).append(_measure(increment, ids))
        for number in range(effort.rounds):
            for store, items in stores.items():
                progress(f"{effort.items:,} items, round {number + 1} of {effort.rounds}: {NAMES[store]}")
                _measure_round(app, engine, port, store, items, results)
    return results


@contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        yield engine
    finally:
        engine.dispose()


class InstantSender:
    """Returns a prepared report, so that only the layer is measured."""

    def __init__(self, count: int) -> None:
        self.report = Report("success", [ItemStatus(f"item-{n}", "acknowledged") for n in range(count)])

    def send_pending(self) -> Report:
        return self.report


def _measure_success(items: Items, count: int, calls: int) -> list[float]:
    bare = InstantSender(count)
    ours = retrying(bare, items=items)
    ours.send_pending()
    overheads = []
    for _ in range(calls):
        (own,), (base,) = _measure(lambda _: ours.send_pending(), [None]), _measure(lambda _: bare.send_pending(), [None])
        overheads.append(own - base)
    return overheads


def _measure(act: Callable[[Any], object], arguments: list[Any]) -> list[float]:
    """Return the milliseconds of each call."""
    times_ms = []
    for argument in arguments:
        began = time.perf_counter()
        act(argument)
        times_ms.append((time.perf_counter() - began) * 1000)
    return times_ms


def _bare_increment(stack: ExitStack, url: str) -> Callable[[str], object]:
    import psycopg

    connection = stack.enter_context(psycopg.connect(url, autocommit=True))
    text = "UPDATE tiles SET attempts = attempts + 1 WHERE id = %s RETURNING attempts"
    return lambda item: connection.execute(text, (item,)).fetchone()


def _measure_round(app: App, engine: Engine, port: int, store: str, items: Items, results: Results) -> None:
    no_retries = RetryPolicy.disabled()

    def new_sender() -> Sender:
        sender.reset_table(engine)
        with app.ledger.begin() as tx:
            tx.exec_driver_sql("DELETE FROM redrive_item")
        return Sender(engine, port)

    def seconds(act: Callable[[], object]) -> float:
        return _measure(lambda _: act(), [None])[0] / 1000

    before = seconds(new_sender().send_pending)
    own = seconds(retrying(new_sender(), items=items, retry=no_retries, item_attempts=100).send_pending)
    results.one_pass.setdefault(store, Pair()).add(before, own, seconds(new_sender().send_pending))
    inner = new_sender()
    with instant():
        total = seconds(retrying(inner, items=items).send_pending)
    results.shares.setdefault(store, []).append((total - sum(inner.spent)) / sum(inner.spent))
