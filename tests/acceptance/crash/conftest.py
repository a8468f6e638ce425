"""Fixtures of the crash tests: one zygote and one database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.servers.fixtures import SERVERS
from tests.zygote import Zygote


@pytest.fixture(scope="package")
def zygote() -> Iterator[Zygote]:
    """The zygote that forks the processes."""
    with Zygote() as started:
        yield started


@pytest.fixture(scope="package")
def postgres_once(request: pytest.FixtureRequest) -> Iterator[str]:
    """One database for all tests. Each test empties it first."""
    server = request.config.stash[SERVERS].address("Postgres")
    name = f"crash_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    yield urlsplit(server)._replace(path=f"/{name}").geturl()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database without a ledger, on each backend."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    found: str = request.getfixturevalue("postgres_once")
    return found
