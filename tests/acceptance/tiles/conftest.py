"""The example's store on a SQLite file and on Postgres, and its provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine

from examples.tiles.migrate import migrate
from examples.tiles.provider import Provider
from examples.tiles.store import TileStore


def _hasty(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")  # no power loss in tests, and a flush is slow


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An empty database."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_db")
        made = sqlalchemy.create_engine(found.replace("postgresql://", "postgresql+psycopg://"))
    else:
        made = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'onboard.db'}", connect_args={"timeout": 30})
        sqlalchemy.event.listen(made, "connect", _hasty)
    yield made
    made.dispose()


@pytest.fixture
def store(engine: Engine) -> TileStore:
    migrate(engine)
    return TileStore(engine)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running
