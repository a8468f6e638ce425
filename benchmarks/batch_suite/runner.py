"""The course of a run: a call that succeeds, an increment, and ten thousand items of which one in a hundred is refused."""

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
    """How long to measure."""

    rounds: int
    items: int
    calls: int
    increments: int
    settings: tuple[str, ...] = DURABLE


FULL = Effort(rounds=11, items=10_000, calls=200, increments=300)
QUICK = Effort(rounds=1, items=300, calls=3, increments=10, settings=SETTINGS)


@dataclass
class Results:
    """By store."""

    success: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """Milliseconds that the layer adds to a call of so many items that succeeds."""
    increments: dict[str, list[list[float]]] = field(default_factory=dict)
    """Milliseconds of each increment, by round; `bare` is the statement alone, by psycopg."""
    one_pass: dict[str, Pair] = field(default_factory=dict)
    """Seconds of a call of one pass: the bare sender, and ours."""
    shares: dict[str, list[float]] = field(default_factory=dict)
    """Of a call of four passes, waits left out: seconds in the layer, to seconds in the sender."""
    items: int = 0

    def p99(self, store: str) -> Interval | None:
        rounds = self.increments.get(store)
        return Interval.of([at(found, 0.99) for found in rounds]) if rounds else None


def at(samples: list[float], share: float) -> float:
    """The sample below which this share of them is."""
    return sorted(samples)[min(len(samples) - 1, round(share * len(samples)))]


def run(databases: Databases, effort: Effort, progress: Progress) -> Results:
    """Everything, on Postgres."""
    results = Results(items=effort.items)
    url = databases.new("postgres")
    with App(url, migrate=True) as app, _engine(url) as engine, provider() as port, ExitStack() as stack:
        sender.made(engine, effort.items)
        stores: dict[str, Items] = {"ledger": app.items("tiles"), "table": table_items(engine)}
        for store, items in stores.items():
            progress(f"A call that succeeds: {NAMES[store]}")
            for many in (1, effort.items):
                results.success[store, many] = _success(items, many, effort.calls if many == 1 else max(3, effort.calls // 10))
        for number in range(effort.rounds):
            progress(f"An increment, round {number + 1} of {effort.rounds}")
            ids = [f"tile-{n % effort.items + 1:06}" for n in range(effort.increments)]
            for store, act in {"bare": _bare(stack, url), **{name: items.increment for name, items in stores.items()}}.items():
                results.increments.setdefault(store, []).append(_timed(act, ids))
        for number in range(effort.rounds):
            for store, items in stores.items():
                progress(f"{effort.items:,} items, round {number + 1} of {effort.rounds}: {NAMES[store]}")
                _round(app, engine, port, store, items, results)
    return results


@contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        yield engine
    finally:
        engine.dispose()


class Ready:
    """Has its answer ready: what is measured is the layer."""

    def __init__(self, many: int) -> None:
        self.report = Report("success", [ItemStatus(f"item-{n}", "acknowledged") for n in range(many)])

    def send_pending(self) -> Report:
        return self.report


def _success(items: Items, many: int, calls: int) -> list[float]:
    bare = Ready(many)
    ours = retrying(bare, items=items)
    ours.send_pending()
    found = []
    for _ in range(calls):
        (own,), (base,) = _timed(lambda _: ours.send_pending(), [None]), _timed(lambda _: bare.send_pending(), [None])
        found.append(own - base)
    return found


def _timed(act: Callable[[Any], object], arguments: list[Any]) -> list[float]:
    """Milliseconds of each."""
    found = []
    for argument in arguments:
        began = time.perf_counter()
        act(argument)
        found.append((time.perf_counter() - began) * 1000)
    return found


def _bare(stack: ExitStack, url: str) -> Callable[[str], object]:
    import psycopg

    connection = stack.enter_context(psycopg.connect(url, autocommit=True))
    text = "UPDATE tiles SET attempts = attempts + 1 WHERE id = %s RETURNING attempts"
    return lambda item: connection.execute(text, (item,)).fetchone()


def _round(app: App, engine: Engine, port: int, store: str, items: Items, results: Results) -> None:
    once = RetryPolicy.disabled()

    def fresh() -> Sender:
        sender.again(engine)
        with app.ledger.begin() as tx:
            tx.exec_driver_sql("DELETE FROM redrive_item")
        return Sender(engine, port)

    def timed(act: Callable[[], object]) -> float:
        return _timed(lambda _: act(), [None])[0] / 1000

    before = timed(fresh().send_pending)
    own = timed(retrying(fresh(), items=items, retry=once, item_attempts=100).send_pending)
    results.one_pass.setdefault(store, Pair()).add(before, own, timed(fresh().send_pending))
    inner = fresh()
    with instant():
        whole = timed(retrying(inner, items=items).send_pending)
    results.shares.setdefault(store, []).append((whole - sum(inner.spent)) / sum(inner.spent))
