"""Commands on SQLite, on Postgres and on Temporal. The counts of jobs are checked after each test (L-8).

Commands on Temporal have their dead letters and their outbox in a ledger on SQLite.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from redrive import App, Temporal
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made  # noqa: F401  # the same databases, created once
from tests.ledgers import sqlite_ledger

OpenApp: TypeAlias = Callable[[], App]


@pytest.fixture(params=["sqlite", "postgres", "temporal"])
def backend(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a ledger that other processes can open."""
    if backend == "postgres":
        found: str = request.getfixturevalue("postgres_ledger")
        return found
    return sqlite_ledger(tmp_path)


@pytest.fixture
def on_temporal(backend: str) -> bool:
    """Whether this test covers differences on Temporal. The table is in docs/how-to/engines/temporal.md."""
    return backend == "temporal"


@pytest.fixture
def open_app(url: str, backend: str, request: pytest.FixtureRequest) -> OpenApp:
    """Opens an app on the same ledger and the same engine as `app`."""
    engine = None
    if backend == "temporal":
        address = request.getfixturevalue("temporal_address")
        engine = Temporal(address, task_queue=f"test-{uuid.uuid4().hex[:12]}", heartbeat=2)
    return lambda: App(url, engine=engine)


@pytest.fixture
def app(open_app: OpenApp) -> Iterator[App]:
    with open_app() as opened:
        yield opened
        assert opened.ledger.imbalance() == []
