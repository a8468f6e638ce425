"""The stored idempotency keys: one implementation of `KeyStore` for SQLite and one for Postgres."""

from __future__ import annotations

from ...ledger.connections import Connections
from .postgres import PostgresKeyStore
from .protocol import KeyStore
from .sqlite import SqliteKeyStore


def key_store_for(connections: Connections, /) -> KeyStore:
    """Return the store for the database of a ledger."""
    return SqliteKeyStore() if connections.on_sqlite else PostgresKeyStore()
