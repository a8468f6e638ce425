"""The course of a run: a call that succeeds, an increment, and ten thousand items of which one in a hundred is refused."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy
from sqlalchemy import Engine

from benchmarks.batches import sender
from benchmarks.batches.provider import provider
from benchmarks.batches.sender import Sender, table_items
from benchmarks.durable.course import DURABLE, Databases
from benchmarks.durable.results import Pair
from benchmarks.interval import Interval
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


FULL = Effort(rounds=11, items=10_000, calls=200, increments=2000)
QUICK = Effort(rounds=1, items=300, calls=3, increments=10, settings=SETTINGS)


@dataclass
class Results:
    """By store."""

    success: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """Milliseconds that the layer adds to a call of so many items that succeeds."""
    increments: dict[str, list[float]] = field(default_factory=dict)
    """Milliseconds of one increment; `bare` is the statement alone, by psycopg."""
    one_pass: dict[str, Pair] = field(default_factory=dict)
    """Seconds of a call of one pass: the bare sender, and ours."""
    shares: dict[str, list[float]] = field(default_factory=dict)
    """Of a call of four passes, waits left out: seconds in the layer, to seconds in the sender."""
    items: int = 0

    def p99(self, store: str) -> Interval | None:
        found = sorted(self.increments.get(store, ()))
        return Interval.exactly(found[min(len(found) - 1, round(0.99 * len(found)))]) if found else None


def run(places: Databases, effort: Effort, progress: Progress) -> Results:
    """Everything, on Postgres."""
    results = Results(items=effort.items)
    url = places.new("postgres")
    with App(url, migrate=True) as app, _engine(url) as engine, provider() as port:
        sender.made(engine, effort.items)
        stores: dict[str, Items] = {"ledger": app.items("tiles"), "table": table_items(engine)}
        for store, items in stores.items():
            progress(f"A call that succeeds: {NAMES[store]}")
            for many in (1, effort.items):
                results.success[store, many] = _success(items, many, effort.calls if many == 1 else max(3, effort.calls // 10))
            progress(f"An increment: {NAMES[store]}")
            ids = [f"tile-{n:06}" for n in range(1, effort.increments + 1)]
            results.increments[store] = _timed(
                items.increment, [ids[n % effort.items] if store == "table" else ids[n] for n in range(len(ids))]
            )
        results.increments["bare"] = _bare(url, effort.increments)
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


def _bare(url: str, many: int) -> list[float]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        text = "UPDATE tiles SET attempts = attempts + 1 WHERE id = %s RETURNING attempts"
        return _timed(lambda n: connection.execute(text, (f"tile-{n % 100 + 1:06}",)).fetchone(), list(range(many)))


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
