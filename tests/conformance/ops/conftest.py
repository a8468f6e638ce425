"""One suite over a SQLite file and Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.ledger import Ledger, open_ledger
from redrive.ops.operator import Operator
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made  # noqa: F401  # the same databases, created once
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
def ann(ledger: Ledger) -> Operator:
    return Operator(ledger, actor="ann")
