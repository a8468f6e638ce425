"""Ledgers for tests, created quickly: on SQLite a migrated file is copied, on Postgres rows are deleted and tables stay.

A migration takes 60 ms, a copy less than one. tests/migration covers how tables are created.
"""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path

import psycopg
import sqlalchemy
from sqlalchemy.exc import SAWarning

from redrive.ledger import Ledger, open_ledger
from redrive.ledger.db.tables import VERSION_TABLE

# Most tests write to few tables, and truncating an empty one takes 6 ms too.
EMPTY = f"""
DO $$
DECLARE
    one text;
    filled boolean;
    used text[] := '{{}}';
BEGIN
    FOR one IN SELECT tablename FROM pg_tables WHERE tablename LIKE 'redrive\\_%' AND tablename <> '{VERSION_TABLE}' LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', one) INTO filled;
        IF filled THEN
            used := used || format('%I', one);
        END IF;
    END LOOP;
    IF used <> '{{}}' THEN
        EXECUTE 'TRUNCATE ' || array_to_string(used, ', ') || ' CASCADE';
    END IF;
    PERFORM setval(seqrelid, seqstart, false) FROM pg_sequence;
END $$
"""


@functools.cache
def _tables() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ledger.db")
        open_ledger(f"sqlite:///{file}", migrate=True).close()
        return file.read_bytes()


def sqlite_ledger(folder: Path) -> str:
    """The URL of an empty ledger with tables in this folder, which other processes can open."""
    file = folder / "ledger.db"
    file.touch(0o600)  # like that of a new ledger
    file.write_bytes(_tables())
    return f"sqlite:///{file}"


def empty_ledger(url: str) -> None:
    """Delete all rows of the ledger at this URL on Postgres, and restart its sequences at 1."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '20s'")
        connection.execute(EMPTY.encode())


def texts_in(ledger: Ledger, *, without: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield the name of each column of each row of each table, and its value as text."""
    with ledger.connections.write.use() as session:
        found = sqlalchemy.MetaData()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Skipped unsupported reflection of expression-based index", SAWarning)
            found.reflect(session.core)
        for table in found.sorted_tables:
            for row in session.core.execute(sqlalchemy.select(table)).mappings():
                for name, value in row.items():
                    if name not in without:
                        text = bytes(value).decode("latin-1") if isinstance(value, (bytes, memoryview)) else str(value)
                        yield f"{table.name}.{name}", text
