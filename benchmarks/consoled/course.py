"""The course of a run: every page of the console, again and again, beside a small ledger and beside a large one."""

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy

from benchmarks.consoled.fill import fill
from benchmarks.consoled.visit import Visitor
from benchmarks.durable.course import DURABLE, Databases
from benchmarks.rounds import Progress
from redrive.console import asgi
from redrive.ledger import open_ledger
from tests.servers.postgres import SETTINGS

DAY = datetime.now(UTC).date() - timedelta(days=20)
PAGES = {
    "overview": "/",
    "activity": "/activity",
    "activity of 7 days": "/activity?since=7d",
    "activity of a kind": "/activity?kind=kind.3",
    "failures": "/failures",
    "failures of a kind": "/failures?kind=kind.3",
    "one failure": "/failures?kind=kind.3&signature=Error3%3A+no+answer+from+host+%23",
    "journal": "/journal",
    "dead letters": "/dead",
    "dead letters of a kind": "/dead?kind=kind.3",
    "dead letters by cause": "/dead?by=cause",
    "one dead letter": "/dead/7",
    "sweeps": "/sweeps",
    "one sweep": "/sweeps/1",
    "keys": "/keys",
    "jobs": "/jobs",
    "jobs that wait": "/jobs?state=queued&kind=kind.3",
    "jobs to be tried again": "/jobs?state=retry_wait&kind=kind.3",
    "jobs done": "/jobs?state=done",
    "one job": "/jobs/7",
    "events": "/events",
    "batches": "/batches",
    "partitions": "/partitions",
    "partitions of a query": "/partitions/day?source=crm&query=query_3",
    "partitions of a day": f"/partitions/day?source=crm&query=query_3&since={DAY}&until={DAY}",
    "customers by day": "/partitions/customers?source=crm&query=query_3",
    "schedules": "/schedules",
    "workers": "/workers",
    "audit": "/audit",
    "layers": "/layers",
}
DATABASES = ("sqlite", "postgres")


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    requests: int
    """Of each page in a round; the slowest of twenty is not counted."""
    small: int
    large: int
    settings: tuple[str, ...] = DURABLE


FULL = Effort(rounds=7, requests=20, small=1_000, large=1_000_000)
QUICK = Effort(rounds=1, requests=1, small=50, large=300, settings=SETTINGS)


@dataclass
class Page:
    """What one page costs on one database."""

    small: list[float] = field(default_factory=list)
    """Milliseconds, p95, of each round."""
    large: list[float] = field(default_factory=list)
    size: int = 0
    """Bytes, of the larger one."""
    queries: int = 0


@dataclass
class Results:
    """All that was measured."""

    large: int
    pages: dict[tuple[str, str], Page] = field(default_factory=dict)
    """By database and page."""


def run(places: Databases, effort: Effort, show: Progress) -> Results:
    results = Results(effort.large)
    for database in DATABASES:
        with ExitStack() as stack:
            clients = []
            for size in (effort.small, effort.large):
                show(f"{database}: filling {size:,}")
                url = places.new(database)
                ledger = stack.enter_context(open_ledger(url, migrate=True))
                fill(ledger, size)
                clients.append(stack.enter_context(closing(Visitor(asgi(ledger)))))
            gc.collect()
            gc.freeze()  # as the server does
            for name, path in PAGES.items():
                show(f"{database}: {name}")
                results.pages[database, name] = _measured(clients, path, effort)
    return results


def _measured(clients: list[Visitor], path: str, effort: Effort) -> Page:
    found = Page()
    for client in clients:
        with counted() as queries:
            answer = client.get(path)
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}: {answer.body[:500]!r}")
        found.size, found.queries = max(found.size, len(answer.body)), max(found.queries, len(queries))
    for _ in range(effort.rounds):
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(effort.requests):
            for client, taken in zip(clients, times, strict=True):
                began = time.perf_counter()
                client.get(path)
                taken.append((time.perf_counter() - began) * 1000)
        for taken, kept in zip(times, (found.small, found.large), strict=True):
            kept.append(sorted(taken)[int(len(taken) * 0.95) - 1 if len(taken) > 1 else 0])
    return found


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that are run in the block."""
    found: list[str] = []

    def heard(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        found.append(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", heard)
    try:
        yield found
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", heard)
