"""LedgerOpener: opens an existing ledger, and uses another one inside a block."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import App, open_ledger
from redrive.errors import LedgerError


def test_open_existing_does_not_create_a_ledger(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with App(url, migrate=True) as app:
        with pytest.raises(LedgerError):
            app.opener.open_existing()
        app.migrate()
        assert app.opener.open_existing() is app.ledger


def test_another_ledger_is_used_inside_a_block_only(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    app = App(f"sqlite:///{file}")
    with open_ledger("sqlite://", migrate=True) as other:
        with app.opener.replaced_by(other):
            assert app.ledger is other
            assert app.keys().ledger is other
        assert not app.opener.is_open
        assert other.counts() == {}, "it stays open"
    assert not file.exists()


def test_a_ledger_that_was_passed_in_stays_open() -> None:
    with open_ledger("sqlite://", migrate=True) as ledger:
        with App(ledger) as app:
            assert app.ledger is ledger
        assert ledger.counts() == {}
