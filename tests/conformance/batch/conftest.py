"""Fixtures: a ledger and a table of the user, on a SQLite file and on Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import Engine

from redrive import App
from tests.conformance.batch.world import METADATA, add_tiles, engine_at
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made  # noqa: F401  # the same databases, created once
from tests.ledgers import sqlite_ledger


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a ledger that other processes can open."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_ledger")
        return found
    return sqlite_ledger(tmp_path)


@pytest.fixture
def app(url: str) -> Iterator[App]:
    with App(url) as opened:
        _ = opened.ledger
        yield opened


@pytest.fixture
def engine(url: str, app: App) -> Iterator[Engine]:
    """An engine of the same database, with a table of the user: tiles t0 to t9."""
    made = engine_at(url)
    METADATA.drop_all(made)
    METADATA.create_all(made)
    add_tiles(made, 10)
    yield made
    METADATA.drop_all(made)
    made.dispose()
    assert isinstance(made, sqlalchemy.Engine)
