"""App: its ledger is opened at first use, once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from redrive import App, open_ledger
from redrive.errors import LedgerError, SchemaMismatch
from redrive.journal.redaction import is_secret


@pytest.mark.req("L-1")
def test_the_ledger_is_opened_at_first_use(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    app = App(f"sqlite:///{file}")
    assert repr(app) == f"<App sqlite:///{file}>"
    assert not file.exists()
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(app.ledger)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    assert app.keys() is app.keys()
    app.close()
    app.close()
    assert app.ledger is not found[0]  # a later use opens it again
    app.close()


def test_the_default_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRIVE_LEDGER", raising=False)
    assert App().url == "sqlite:///redrive.db"
    monkeypatch.setenv("REDRIVE_LEDGER", "postgresql://ann:secret@db/shop")
    app = App()
    assert app.url == "postgresql://ann:***@db/shop"
    assert "secret" not in repr(app)


@pytest.mark.parametrize("wrong", ["mysql://x", "sqlite:x", "", "postgresql://host"])
def test_an_invalid_address_is_rejected_immediately(wrong: str) -> None:
    with pytest.raises(LedgerError):
        App(wrong)


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(TypeError, match="the URL of a ledger or an open ledger"):
        App(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="secrets must be a collection"):
        App(secrets="iban")


def test_secrets_are_hidden() -> None:
    App(secrets=["iban_of_the_test"])
    assert is_secret("iban_of_the_test")


def test_an_old_sqlite_file_is_migrated_unless_migrate_is_false(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with App(url, migrate=False) as app, pytest.raises(LedgerError, match="redrive ledger migrate"):
        _ = app.ledger
    open_ledger(url, migrate=True).close()
    with App(url) as app:
        assert app.keys().page() == []


@pytest.mark.req("L-1")
def test_postgres_is_migrated_only_on_request(postgres_db: str) -> None:
    advice = r"redrive ledger migrate --ledger \S*postgresql://"
    with App(postgres_db) as app, pytest.raises(SchemaMismatch, match=advice):
        _ = app.ledger
    with App(postgres_db, migrate=True) as app:
        assert app.keys().page() == []
