"""One suite over a SQLite file, SQLite in memory and Postgres. After every test the counts must balance (L-8)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from redrive.ledger import Ledger, open_ledger
from tests.ledgers import empty_ledger, sqlite_ledger
from tests.servers.fixtures import SERVERS


@pytest.fixture(scope="session")
def postgres_made(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of one database with tables for all tests, because creating a database takes ten times as long as emptying it."""
    import psycopg

    server = request.config.stash[SERVERS].address("Postgres")
    name = f"redrive_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    url = urlsplit(server)._replace(path=f"/{name}").geturl()
    open_ledger(url, migrate=True).close()
    yield url
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def postgres_ledger(postgres_made: str) -> str:
    """The URL of an empty ledger on Postgres."""
    import psycopg

    empty_ledger(postgres_made)
    with psycopg.connect(postgres_made, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS effect")
    return postgres_made


def _url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "postgres":
        found: str = request.getfixturevalue("postgres_ledger")
        return found
    return "sqlite://" if kind == "memory" else sqlite_ledger(tmp_path)


def _ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url, migrate=url == "sqlite://") as opened:
        yield opened
        assert opened.imbalance() == []
        opened.maintenance.fold_counters()
        assert opened.imbalance() == []


@pytest.fixture(params=["sqlite", *(["memory"] if os.environ.get("REDRIVE_FULL") else []), "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger on each database. The full run includes SQLite in memory, which shares its code with the file."""
    yield from _ledger(_url(request.param, request, tmp_path))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty ledger that several processes may open. It must balance at the end."""
    url = _url(request.param, request, tmp_path)
    for _ in _ledger(url):
        yield url


@pytest.fixture
def shared(url: str) -> Iterator[Ledger]:
    """The ledger at `url`."""
    with open_ledger(url) as opened:
        yield opened


@pytest.fixture
def on_postgres(postgres_ledger: str) -> Iterator[Ledger]:
    """A ledger on Postgres, for tests of Postgres only."""
    yield from _ledger(postgres_ledger)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger in a SQLite file, for tests of SQLite only."""
    yield from _ledger(sqlite_ledger(tmp_path))
