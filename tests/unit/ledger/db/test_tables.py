"""The tables, as statements for each database."""

from __future__ import annotations

import pytest
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable

from redrive.ledger.db.tables import BUSY, METADATA


@pytest.mark.req("X-5")
def test_storage_options_are_written_with_every_version_of_sqlalchemy() -> None:
    """SQLAlchemy 2.0, the lowest version, does not know them. `make lowest` runs this test with it."""
    busy, quiet = METADATA.tables["redrive_job"], METADATA.tables["redrive_sweep"]
    options = ", ".join(f"{name} = {value}" for name, value in BUSY.items())
    assert str(CreateTable(busy).compile(dialect=postgresql.dialect())).rstrip().endswith(f"WITH ({options})")
    assert "autovacuum" not in str(CreateTable(quiet).compile(dialect=postgresql.dialect()))
    assert "autovacuum" not in str(CreateTable(busy).compile(dialect=sqlite.dialect()))
