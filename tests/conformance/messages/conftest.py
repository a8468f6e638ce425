"""Fixtures: a ledger on a SQLite file and on Postgres, and a real Redis."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from redrive.ledger import Ledger, open_ledger
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made  # noqa: F401  # the same databases, made once
from tests.ledgers import sqlite_ledger


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty ledger that other processes can open."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_ledger")
        return found
    return sqlite_ledger(tmp_path)


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url) as opened:
        yield opened


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as opened:
        yield opened


@pytest.fixture
def stream() -> str:
    """A new name of a stream."""
    return f"shop.events.{secrets.token_hex(4)}"
