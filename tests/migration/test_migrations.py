"""Migrations: up and down with data, equal to the tables in code, beside other tables of the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.db import schema
from redrive.ledger.db.session import Session
from redrive.ledger.db.tables import HEAD, METADATA, VERSION_TABLE

MIGRATIONS = Path(schema.__file__).parent / "migrations"
REVISIONS = tuple(sorted(path.name[:4] for path in (MIGRATIONS / "versions").glob("[0-9]*.py")))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_db")
        return found
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def engine(url: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sqlalchemy.NullPool)


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    """A connection to an empty database, as a ledger opens it."""
    made = engine(url).execution_options(isolation_level="AUTOCOMMIT")
    opened = Session(made.connect())
    yield opened
    opened.close()


def tables(session: Session) -> set[str]:
    return {name for name in sqlalchemy.inspect(session.core).get_table_names() if not name.startswith("sqlite_")}


def fill(ledger: Ledger) -> None:
    """Add rows of every type."""
    ledger.submit_many([NewJob("k", str(number), b"p", ids={"a": "b"}) for number in range(6)])
    one, two, three, *_ = ledger.claim({"k": 5}, worker="w")
    ledger.settle([one.done(b"r"), two.again(5, error="e"), three.dead("x", error="e")])
    (letter,) = ledger.dead_letters()
    ledger.replay([letter.id], actor="ann", because="so")
    ledger.maintenance.heartbeat("w")


def contents(url: str) -> dict[str, list[Any]]:
    with engine(url).connect() as connection:
        return {name: list(connection.execute(sqlalchemy.text(f"SELECT * FROM {name} ORDER BY 1"))) for name in METADATA.tables}


@pytest.mark.req("L-1")
def test_the_head_in_code_is_the_head_of_the_scripts() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_current_head() == HEAD
    chain = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(chain)) == REVISIONS
    assert all(name.startswith("redrive_") for name in (*METADATA.tables, VERSION_TABLE))


@pytest.mark.req("L-1")
def test_the_migrated_schema_equals_the_tables_in_code(url: str) -> None:
    open_ledger(url, migrate=True).close()
    with engine(url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": False})
        ours = [
            difference
            for difference in compare_metadata(context, METADATA)
            if not (difference[0] == "remove_table" and difference[1].name == VERSION_TABLE)
        ]
        assert ours == []


@pytest.mark.req("L-1")
def test_the_migrated_schema_equals_created_tables(tmp_path: Path) -> None:
    """On SQLite the SQL is identical, including checks, defaults and conditions of indexes."""

    def made(path: Path) -> dict[str, str]:
        with sqlite3.connect(path) as connection:
            rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        connection.close()
        return {
            name: " ".join(sql.replace('"', "").replace(",", " , ").replace(")", " ) ").split())
            for name, sql in rows
            if name not in (VERSION_TABLE, "sqlite_sequence")
        }

    open_ledger(f"sqlite:///{tmp_path / 'a.db'}", migrate=True).close()
    made_engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'b.db'}")
    METADATA.create_all(made_engine)
    made_engine.dispose()
    assert made(tmp_path / "a.db") == made(tmp_path / "b.db")


@pytest.mark.req("L-1")
@pytest.mark.parametrize("revision", REVISIONS)
def test_each_revision_downgrades_and_upgrades_with_its_data(url: str, session: Session, revision: str) -> None:
    """Downgrade each revision by one and upgrade it again. Data is kept as far as the older schema can store it."""
    with open_ledger(url, migrate=True) as ledger:
        fill(ledger)
    session.core.execute(sqlalchemy.text("CREATE TABLE theirs (n INTEGER)"))
    session.core.execute(sqlalchemy.text("INSERT INTO theirs VALUES (1)"))
    at = REVISIONS.index(revision)
    before = REVISIONS[at - 1] if at else "base"
    schema.migrate(session, before, shown="")
    if before == "base":
        assert tables(session) == {"theirs"}
    else:
        assert schema.revision(session.core) == before
        assert len(session.core.execute(sqlalchemy.text("SELECT id FROM redrive_job")).all()) == 7
    schema.migrate(session, shown="")
    assert schema.revision(session.core) == HEAD
    assert session.core.scalar(sqlalchemy.text("SELECT n FROM theirs")) == 1
    with open_ledger(url) as ledger:
        ledger.submit(NewJob("after", "a"))
        assert ledger.imbalance() == []


@pytest.mark.req("L-1")
def test_migrating_again_changes_nothing(url: str) -> None:
    with open_ledger(url, migrate=True) as ledger:
        fill(ledger)
    before = contents(url)
    with open_ledger(url, migrate=True) as ledger:
        ledger.migrate()
        assert ledger.imbalance() == []
    assert contents(url) == before


@pytest.mark.req("L-1")
def test_programs_that_start_together_migrate_once(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        ledgers = list(pool.map(lambda _: open_ledger(url, migrate=True), range(4)))
    for number, ledger in enumerate(ledgers):
        assert ledger.submit(NewJob("k", str(number))).created
        ledger.close()


@pytest.mark.req("L-1")
def test_a_failed_migration_changes_nothing(url: str, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.core.execute(sqlalchemy.text("CREATE TABLE theirs (n INTEGER)"))
    monkeypatch.setattr("redrive.ledger.db.schema.crash_point", lambda _name: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        open_ledger(url, migrate=True)
    assert tables(session) == {"theirs"}


@pytest.mark.req("L-1")
def test_the_ledger_coexists_with_the_users_alembic(url: str, tmp_path: Path) -> None:
    """The user's version table, revisions and tables are independent of Redrive's."""
    theirs = tmp_path / "theirs"
    (theirs / "versions").mkdir(parents=True)
    (theirs / "env.py").write_text(
        "from alembic import context\n"
        "connection = context.config.attributes['connection']\n"
        "context.configure(connection=connection)\n"
        "with context.begin_transaction():\n    context.run_migrations()\n"
    )
    (theirs / "versions" / "abc.py").write_text(
        "from alembic import op\nimport sqlalchemy as sa\nrevision = 'abc'\ndown_revision = None\n"
        "def upgrade():\n    op.create_table('orders', sa.Column('id', sa.Integer, primary_key=True))\n"
        "def downgrade():\n    op.drop_table('orders')\n"
    )
    config = Config()
    config.set_main_option("script_location", str(theirs))

    def run(act: Any, to: str) -> None:
        with engine(url).begin() as connection:
            config.attributes["connection"] = connection
            act(config, to)

    def versions(name: str) -> list[str]:
        with engine(url).connect() as connection:
            return list(connection.execute(sqlalchemy.text(f"SELECT version_num FROM {name}")).scalars())

    run(command.upgrade, "head")
    with open_ledger(url, migrate=True) as ledger:
        fill(ledger)
    assert (versions("alembic_version"), versions(VERSION_TABLE)) == (["abc"], [HEAD])
    run(command.downgrade, "base")
    with open_ledger(url) as ledger:
        assert ledger.imbalance() == []
    run(command.upgrade, "head")
    made = engine(url).execution_options(isolation_level="AUTOCOMMIT")
    opened = Session(made.connect())
    schema.migrate(opened, "base", shown="")
    assert tables(opened) == {"alembic_version", "orders"}
    opened.close()
