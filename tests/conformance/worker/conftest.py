"""The worker over a SQLite file, SQLite in memory and Postgres, by the ledger's own fixtures."""

from __future__ import annotations

from tests.conformance.ledger.conftest import ledger, on_sqlite, postgres_ledger, postgres_made, shared, url

__all__ = ["ledger", "on_sqlite", "postgres_ledger", "postgres_made", "shared", "url"]
