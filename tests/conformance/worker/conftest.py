"""The worker over a SQLite file, SQLite in memory and Postgres, by the ledger's own fixtures."""

from __future__ import annotations

import pytest

from tests.conformance.ledger.conftest import ledger, on_sqlite, postgres_ledger, postgres_made, shared, url

from .world import Refreshes

__all__ = ["ledger", "on_sqlite", "postgres_ledger", "postgres_made", "shared", "url"]


@pytest.fixture
def refreshes(monkeypatch: pytest.MonkeyPatch) -> Refreshes:
    """Workers of the test that read pauses and limits often."""
    return Refreshes(monkeypatch)
