"""The stored idempotency keys: the same operations for SQLite and for Postgres."""

from __future__ import annotations

from typing import TypeAlias

from ...ledger.db.connections import Connections
from .postgres import PostgresKeyStore
from .sqlite import SqliteKeyStore

KeyStore: TypeAlias = SqliteKeyStore | PostgresKeyStore


def key_store_for(connections: Connections, /) -> KeyStore:
    """Return the store for the database of a ledger."""
    return SqliteKeyStore() if connections.on_sqlite else PostgresKeyStore()
