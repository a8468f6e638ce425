"""Alembic's autogenerate ignores the ledger's tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, make_url

from redrive.ledger import include_name
from tests.ledgers import sqlite_ledger


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_ledger(tmp_path)
    address: str = request.getfixturevalue("postgres_ledger")
    return str(make_url(address).set(drivername="postgresql+psycopg").render_as_string(hide_password=False))


@pytest.mark.req("L-1")
@pytest.mark.filterwarnings("ignore:.*expression-based index")  # without include_name
def test_autogenerate_ignores_the_tables_of_the_ledger(url: str) -> None:
    own = MetaData()
    Table("shop_order", own, Column("id", Integer, primary_key=True))
    engine = create_engine(url)
    with engine.connect() as connection:
        plain = compare_metadata(MigrationContext.configure(connection), own)
        assert any(step[0] == "remove_table" for step in plain), "without include_name it wants to drop our tables"
        options = {"include_name": include_name, "include_schemas": False}
        steps = compare_metadata(MigrationContext.configure(connection, opts=options), own)
    engine.dispose()
    assert [(step[0], step[1].name) for step in steps] == [("add_table", "shop_order")]


def test_include_name_excludes_only_the_ledgers_tables() -> None:
    assert not include_name("redrive_job", "table", {"schema_name": None})
    assert not include_name("redrive_version", "table", {"schema_name": None})
    assert not include_name("ix_any", "index", {"schema_name": None, "table_name": "redrive_job"})
    assert include_name("redrive_settings_of_my_shop", "table", {"schema_name": None})
    assert include_name("public", "schema", {})
    assert include_name(None, "schema", {})
