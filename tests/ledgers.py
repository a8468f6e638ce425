"""Ledgers for tests, made quickly: each process migrates one SQLite file, and copies it from then on.

To migrate takes 60 ms of work, to copy less than one. How tables are made is shown by tests/migration.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from redrive.ledger import open_ledger


@functools.cache
def _tables() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ledger.db")
        open_ledger(f"sqlite:///{file}", migrate=True).close()
        return file.read_bytes()


def sqlite_ledger(folder: Path) -> str:
    """The URL of an empty ledger in this folder, with its tables, that other processes reach too."""
    file = folder / "ledger.db"
    file.write_bytes(_tables())
    return f"sqlite:///{file}"
