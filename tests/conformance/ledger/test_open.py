"""Opening a ledger: invalid addresses, foreign databases and other schema versions are clear errors."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from redrive import App
from redrive.errors import LedgerError, LedgerRemoved, LedgerUnavailable, SchemaMismatch
from redrive.ledger import NewJob, open_ledger
from redrive.ledger.db import sqlite
from redrive.ledger.db.tables import HEAD
from redrive.ops.overview.operations import change_token


@pytest.mark.req("L-1")
@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("", "a ledger's address is sqlite:///path"),
        ("redrive.db", "a ledger's address is"),
        ("mysql://ann:secret@host/db", r"not 'mysql://ann:\*\*\*@host/db'"),
        ("sqlite:redrive.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///x.db?mode=ro", "takes no options"),
        ("postgresql://host", "names no database"),
        ("postgresql://host:abc/db", "a ledger's address is"),
    ],
)
def test_an_invalid_address_is_an_error(url: str, error: str) -> None:
    with pytest.raises(LedgerError, match=error) as caught:
        open_ledger(url)
    assert "secret" not in str(caught.value)


def test_an_address_must_be_text() -> None:
    with pytest.raises(TypeError, match="must be text"):
        open_ledger(7)  # type: ignore[arg-type]


@pytest.mark.req("L-1")
def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger at .*redrive ledger migrate"):
        open_ledger(f"sqlite:///{tmp_path / 'a.db'}")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LedgerError, match="cannot be opened"):
        open_ledger(f"sqlite:///{tmp_path / 'no' / 'a.db'}", migrate=True)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.req("L-1")
@pytest.mark.parametrize("migrate", [False, True])
def test_a_file_of_another_format_is_not_changed(tmp_path: Path, migrate: bool) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but long enough to look at" * 50)
    before = digest(file)
    with pytest.raises(LedgerError, match="is not a SQLite database"):
        open_ledger(f"sqlite:///{file}", migrate=migrate)
    assert digest(file) == before


@pytest.mark.req("L-1")
@pytest.mark.parametrize("migrate", [False, True])
@pytest.mark.parametrize(
    ("tables", "error"),
    [
        ("CREATE TABLE redrive_job (x int)", "tables with the names of the ledger belong to another program: redrive_job"),
        ("CREATE TABLE redrive_version (x int)", "belongs to another program"),
        ("CREATE TABLE redrive_version (version_num text); INSERT INTO redrive_version VALUES ('abc')", "the revision abc"),
        (
            "CREATE TABLE redrive_version (version_num text); INSERT INTO redrive_version VALUES ('9999')",
            "is newer .* install a newer",
        ),
    ],
)
def test_a_foreign_or_newer_schema_is_rejected_and_not_changed(
    tables: str, error: str, migrate: bool, tmp_path: Path, postgres_db: str
) -> None:
    file = tmp_path / "foreign.db"
    with sqlite3.connect(file) as connection:
        connection.executescript(tables)
    connection.close()
    before = digest(file)
    with pytest.raises(SchemaMismatch, match=error):
        open_ledger(f"sqlite:///{file}", migrate=migrate)
    assert digest(file) == before
    with psycopg.connect(postgres_db) as there:
        there.execute(tables.encode())
    with pytest.raises(SchemaMismatch, match=error):
        open_ledger(postgres_db, migrate=migrate)
    with psycopg.connect(postgres_db) as there:
        found = there.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'redrive%'").fetchone()
    assert found == (1,)


@pytest.mark.req("L-1")
def test_an_empty_database_needs_a_migration(postgres_db: str, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    for url in (postgres_db, f"sqlite:///{tmp_path / 'empty.db'}"):
        with pytest.raises(SchemaMismatch, match="no ledger at .*; create it with `redrive ledger migrate --ledger"):
            open_ledger(url)
        with open_ledger(url, migrate=True) as ledger:
            ledger.submit(NewJob("k", "a"))
        with open_ledger(url) as ledger:
            assert ledger.find("k", "a") is not None
            ledger.migrate()
        with open_ledger(url, migrate=True) as ledger:
            assert ledger.find("k", "a") is not None


@pytest.mark.req("L-1")
def test_an_older_schema_needs_a_migration(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    open_ledger(url, migrate=True).close()
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("UPDATE redrive_version SET version_num = '0000'")
    connection.close()
    with pytest.raises(SchemaMismatch, match=rf"is older \(revision 0000\) than this code \({HEAD}\)"):
        open_ledger(url)


def test_an_unreachable_server_is_an_error() -> None:
    with pytest.raises(LedgerError, match="Postgres cannot be reached") as caught:
        open_ledger("postgresql://ann:secret@127.0.0.1:1/db")
    assert "secret" not in str(caught.value)


def test_an_address_that_postgres_does_not_understand() -> None:
    with pytest.raises(LedgerError, match="not a valid Postgres address") as caught:
        open_ledger("postgresql://ann:secret@127.0.0.1/db?nonsense=1")
    assert "secret" not in str(caught.value)


def test_a_password_is_never_shown(postgres_ledger: str) -> None:
    url = postgres_ledger.replace("postgres@", "postgres:s3cret@")
    with open_ledger(url) as ledger:
        assert "s3cret" not in ledger.url + repr(ledger)
        assert "***" in ledger.url


@pytest.mark.req("L-1")
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing, url in (("alembic", "sqlite://"), ("psycopg", "postgresql://localhost/x")):
        extra = {"alembic": "ledger", "psycopg": "postgres"}[missing]
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            for module in ("redrive.ledger.open", "redrive.ledger.db.connections"):
                patch.setattr(f"{module}.find_spec", lambda name: None if sys.modules.get(name, 1) is None else name)
            with pytest.raises(LedgerError, match=rf'pip install "redrive\[{extra}\]"'):
                open_ledger(url)


def test_a_closed_ledger_raises() -> None:
    ledger = open_ledger("sqlite://")
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="is closed"):
        ledger.submit(NewJob("k", "a"))


@pytest.mark.req("L-1")
def test_sqlite_is_durable_by_default(tmp_path: Path) -> None:
    from tests.conformance.ledger.world import rows

    with open_ledger(f"sqlite:///{tmp_path / 'a.db'}", migrate=True) as ledger:
        assert rows(ledger, "PRAGMA journal_mode") == [("wal",)]
        assert rows(ledger, "PRAGMA synchronous") == [(2,)]


def test_missing_privileges_are_named(postgres_ledger: str) -> None:
    """The migrating role owns the tables. Workers need only read and write access."""
    user = f"weak{os.getpid()}"
    weak = postgres_ledger.replace("postgres@", f"{user}@")
    with open_ledger(postgres_ledger, migrate=True), psycopg.connect(postgres_ledger, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {user} LOGIN")
        try:
            with pytest.raises(LedgerError, match="this user may not read redrive_version: GRANT SELECT, INSERT, UPDATE, DELETE"):
                open_ledger(weak)
            owner.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {user}")
            with open_ledger(weak) as ledger:
                ledger.submit(NewJob("k", "a"))
                ledger.settle(ledger.claim({"k": 1}, worker="w")[0].dead("no", error="no"))
                assert ledger.counts()["k"].dead == 1
        finally:
            owner.execute(f"DROP OWNED BY {user}")
            owner.execute(f"DROP ROLE {user}")


@pytest.mark.req("L-1")
def test_a_role_without_access_to_secret_names_can_use_the_ledger(postgres_ledger: str, caplog: pytest.LogCaptureFixture) -> None:
    """Grants for each table do not cover a table that was created later."""
    user = f"older{os.getpid()}"
    older = postgres_ledger.replace("postgres@", f"{user}@")
    with open_ledger(postgres_ledger, migrate=True), psycopg.connect(postgres_ledger, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {user} LOGIN")
        owner.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {user}")
        owner.execute(f"REVOKE ALL ON redrive_hidden_name FROM {user}")
        try:
            with caplog.at_level("DEBUG", "redrive"), open_ledger(older) as ledger:
                assert "GRANT SELECT, INSERT ON redrive_hidden_name" in caplog.text
                ledger.submit(NewJob("k", "a"))
                assert change_token(ledger)
                assert ledger.counts()["k"].ready == 1
            with App(older, secrets=["badge_no"]) as app:
                assert app.ledger.counts()["k"].ready == 1
        finally:
            owner.execute(f"DROP OWNED BY {user}")
            owner.execute(f"DROP ROLE {user}")


def test_missing_create_privileges_are_explained(postgres_ledger: str) -> None:
    """Directly and through an app: no library error with a page of SQL."""
    user = f"weaker{os.getpid()}"
    with open_ledger(postgres_ledger, migrate=True), psycopg.connect(postgres_ledger, autocommit=True) as owner:
        owner.execute(f"CREATE SCHEMA empty_of_it; CREATE ROLE {user} LOGIN; ALTER ROLE {user} SET search_path = empty_of_it")
        owner.execute(f"GRANT USAGE ON SCHEMA empty_of_it TO {user}")
        try:
            weak = postgres_ledger.replace("postgres@", f"{user}@")
            of_app: Callable[[], object] = lambda: App(weak, migrate=True).ledger  # noqa: E731  # opened at first use
            for opened in (partial(open_ledger, weak, migrate=True), of_app):
                with pytest.raises(LedgerError, match="GRANT CREATE on the schema to it") as told:
                    opened()
                parts = urlsplit(postgres_ledger)
                address = parts._replace(netloc=f"{parts.hostname}:{parts.port}").geturl()
                assert f"set PGUSER to the owner of the tables and run `redrive ledger migrate --ledger {address}`" in str(
                    told.value
                )
        finally:
            owner.execute(f"DROP OWNED BY {user}; DROP ROLE {user}; DROP SCHEMA empty_of_it")


def test_a_file_that_cannot_be_written_to_is_not_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a read-only mount: it can be opened."""
    file = tmp_path / "ledger.db"
    sqlite3.connect(file).close()
    monkeypatch.setattr(sqlite, "connect", lambda file, create, synced: _reads_only(file))
    with pytest.raises(LedgerError, match="ledger.db: the file cannot be written to; this user must be able to"):
        open_ledger(f"sqlite:///{file}", migrate=True)


def _reads_only(file: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{file}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)


def test_seqscan_is_off_for_our_sessions_only(postgres_ledger: str) -> None:
    """Trap 2: a plan for a small table must not be reused. The caller's session keeps its own setting."""
    from tests.conformance.ledger.world import rows

    with open_ledger(postgres_ledger) as ledger:
        assert rows(ledger, "SHOW enable_seqscan") == [("off",)]
        assert rows(ledger, "SHOW jit") == [("off",)]
        with psycopg.connect(postgres_ledger) as caller:
            ledger.submit(NewJob("k", "a"), tx=caller)
            assert caller.execute("SHOW enable_seqscan").fetchone() == ("on",)


def test_sqlalchemy_is_loaded_only_when_a_ledger_is_opened() -> None:
    import subprocess

    program = (
        "import sys, redrive.ledger; assert 'sqlalchemy' not in sys.modules\n"
        "redrive.ledger.NewJob; assert 'alembic' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def test_after_a_cut_connection_the_next_call_has_a_new_one(postgres_ledger: str) -> None:
    """The cause that ended one connection has ended the idle ones too. Only one call fails, not one for each connection."""
    with open_ledger(postgres_ledger) as ledger:
        held = [ledger.connections.write.acquire() for _ in range(4)]
        for one in held:
            ledger.connections.write.release(one)
        with psycopg.connect(postgres_ledger, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        with pytest.raises(LedgerUnavailable):
            ledger.maintenance.heartbeat("w")
        for _ in range(4):
            ledger.maintenance.heartbeat("w")
        ledger.submit(NewJob("k", "a"))
        assert ledger.counts()["k"].submitted == 1


def test_a_removed_or_replaced_file_accepts_no_writes(tmp_path: Path) -> None:
    """SQLite would continue writing to a deleted file, and the data would be lost."""
    file = tmp_path / "ledger.db"
    url = f"sqlite:///{file}"
    with open_ledger(url, migrate=True) as ledger:
        ledger.submit(NewJob("k", "a"))
        for each in tmp_path.iterdir():
            each.unlink()
        with pytest.raises(LedgerError, match="was removed or moved while in use; .* restore the file from a backup"):
            ledger.submit(NewJob("k", "b"))
        with open_ledger(url, migrate=True) as other:
            with pytest.raises(LedgerError, match="was replaced while it was open, .*; restart this program"):
                ledger.claim({"k": 1}, worker="w")
            with pytest.raises(LedgerError, match="was replaced while it was open"):
                ledger.maintenance.heartbeat("w")
            assert other.submit(NewJob("k", "b")).created


@pytest.mark.parametrize("pattern", ["ledger.db*", "ledger.db"])
def test_a_file_that_is_removed_while_a_session_opens_is_not_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """An empty file would look like another ledger: "was replaced" instead of "was removed"."""
    file = tmp_path / "ledger.db"
    with open_ledger(f"sqlite:///{file}", migrate=True) as ledger:
        ledger.submit(NewJob("k", "a"))
        opened = sqlite.connect

        def remove_first(target: str, /, *, create: bool, synced: bool) -> sqlite3.Connection:
            for each in list(tmp_path.glob(pattern)):
                each.unlink()
            return opened(target, create=create, synced=synced)

        monkeypatch.setattr(sqlite, "connect", remove_first)
        with pytest.raises(LedgerRemoved, match="was removed or moved while in use"):
            ledger.connections.open_session()
        assert not file.exists()


def test_no_ledger_is_created_next_to_an_orphaned_log(tmp_path: Path) -> None:
    """It would share their write-ahead log, and be damaged permanently."""
    file = tmp_path / "ledger.db"
    with open_ledger(f"sqlite:///{file}", migrate=True) as ledger:
        ledger.submit(NewJob("k", "a"))
        file.rename(tmp_path / "away.db")
        for migrate in (True, False):
            with pytest.raises(LedgerError, match="is missing, but .*-wal exists, .* move the file back; .* jobs are lost"):
                open_ledger(f"sqlite:///{file}", migrate=migrate)
        with pytest.raises(LedgerRemoved, match="is missing, but .*-wal exists"):
            ledger.submit(NewJob("k", "lost"))
        assert not file.exists()
        (tmp_path / "away.db").rename(file)
        ledger.submit(NewJob("k", "b"))
        assert ledger.counts()["k"].submitted == 2


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=f"the folder {tmp_path / 'none'}"):
        open_ledger(f"sqlite:///{tmp_path / 'none' / 'ledger.db'}", migrate=True)
    with pytest.raises(LedgerError, match=f"{tmp_path} cannot be opened: it is a folder"):
        open_ledger(f"sqlite:///{tmp_path}", migrate=True)


@contextmanager
def locked_out(folder: Path, mode: int) -> Iterator[None]:
    """The folder has this mode, and the user is not root."""
    folder.chmod(mode)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)


def test_a_file_without_write_access_is_named() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        url = f"sqlite:///{folder}/ledger.db"
        open_ledger(url, migrate=True).close()
        for mode, migrate, says in ((0o555, False, "must be able to write"), (0o000, True, "cannot access its folder")):
            (folder / "ledger.db").chmod(0o444)
            with locked_out(folder, mode), pytest.raises(LedgerError, match=says):
                open_ledger(url, migrate=migrate)
