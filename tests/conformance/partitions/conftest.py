"""One suite over a SQLite file and Postgres. After every test the rollup must equal the rows (P-14)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.ledger import Ledger, open_ledger
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made  # noqa: F401  # the same databases, created once
from tests.conformance.partitions.world import World


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a ledger that other processes can open."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_ledger")
        return found
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url, migrate=url.startswith("sqlite")) as opened:
        yield opened


@pytest.fixture
def world(ledger: Ledger) -> Iterator[World]:
    """A dataset of one source, its roles, and time that the test moves."""
    made = World(ledger)
    yield made
    assert made.queries.imbalance() == []
    assert made.wrong() == []
