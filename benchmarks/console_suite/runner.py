"""Measure every console page with a small and a large ledger."""

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy

from benchmarks.console_suite.fill import fill
from benchmarks.console_suite.page_client import PageClient
from benchmarks.ledger_suite.runner import DURABLE, Databases
from benchmarks.rounds import Progress
from redrive.console import asgi
from redrive.ledger import open_ledger
from tests.servers.postgres import SETTINGS

DAY = datetime.now(UTC).date() - timedelta(days=20)
PAGES = {
    "overview": "/",
    "activity": "/activity",
    "activity of 7 days": "/activity?since=7d",
    "activity, one type": "/activity?kind=kind.3",
    "failures": "/failures",
    "failures, one type": "/failures?kind=kind.3",
    "one failure": "/failures?kind=kind.3&signature=Error3%3A+no+answer+from+host+%23",
    "journal": "/journal",
    "dead letters": "/dead",
    "dead letters, one type": "/dead?kind=kind.3",
    "dead letters by cause": "/dead?by=cause",
    "one dead letter": "/dead/7",
    "sweeps": "/sweeps",
    "one sweep": "/sweeps/1",
    "keys": "/keys",
    "jobs": "/jobs",
    "queued jobs": "/jobs?state=queued&kind=kind.3",
    "jobs in retry_wait": "/jobs?state=retry_wait&kind=kind.3",
    "finished jobs": "/jobs?state=done",
    "one job": "/jobs/7",
    "events": "/events",
    "batches": "/batches",
    "partitions": "/partitions",
    "partitions of a query": "/partitions/day?source=crm&query=query_3",
    "partitions of a day": f"/partitions/day?source=crm&query=query_3&since={DAY}&until={DAY}",
    "customers by day": "/partitions/customers?source=crm&query=query_3",
    "schedules": "/schedules",
    "workers": "/workers",
    "audit log": "/audit",
    "layers": "/layers",
}
DATABASES = ("sqlite", "postgres")


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    rounds: int
    requests: int
    """Requests per page and round. The slowest of 20 does not count."""
    small: int
    large: int
    settings: tuple[str, ...] = DURABLE


FULL = Effort(rounds=7, requests=20, small=1_000, large=1_000_000)
QUICK = Effort(rounds=1, requests=1, small=50, large=300, settings=SETTINGS)


@dataclass
class Page:
    """Figures of a page on one database."""

    small: list[float] = field(default_factory=list)
    """Milliseconds (p95) per round."""
    large: list[float] = field(default_factory=list)
    size: int = 0
    """Bytes, with the larger ledger."""
    queries: int = 0


@dataclass
class Results:
    """Figures of all pages."""

    large: int
    pages: dict[tuple[str, str], Page] = field(default_factory=dict)
    """By database and page."""


def run(databases: Databases, effort: Effort, progress: Progress) -> Results:
    results = Results(effort.large)
    for database in DATABASES:
        with ExitStack() as stack:
            clients = []
            for size in (effort.small, effort.large):
                progress(f"{database}: filling {size:,}")
                url = databases.new(database)
                ledger = stack.enter_context(open_ledger(url, migrate=True))
                fill(ledger, size)
                clients.append(stack.enter_context(closing(PageClient(asgi(ledger)))))
            gc.collect()
            gc.freeze()  # as the console server does
            for name, path in PAGES.items():
                progress(f"{database}: {name}")
                results.pages[database, name] = _measure(clients, path, effort)
    return results


def _measure(clients: list[PageClient], path: str, effort: Effort) -> Page:
    page = Page()
    for client in clients:
        with record_statements() as statements:
            response = client.get(path)
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status}: {response.body[:500]!r}")
        page.size, page.queries = max(page.size, len(response.body)), max(page.queries, len(statements))
    for _ in range(effort.rounds):
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(effort.requests):
            for client, samples in zip(clients, times, strict=True):
                began = time.perf_counter()
                client.get(path)
                samples.append((time.perf_counter() - began) * 1000)
        for samples, figures in zip(times, (page.small, page.large), strict=True):
            figures.append(sorted(samples)[int(len(samples) * 0.95) - 1 if len(samples) > 1 else 0])
    return page


@contextmanager
def record_statements() -> Iterator[list[str]]:
    """Record the SQL statements of the block."""
    statements: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        statements.append(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", record)
    try:
        yield statements
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", record)
