"""Names of secret fields in the ledger: redacted by programs that know only its address."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from redrive import App
from redrive.journal.redaction import is_secret, secrets
from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ops.overview.operations import change_token
from tests.unit.cli.command import run


@pytest.fixture(autouse=True)
def unhidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(secrets, "_added_names", frozenset())
    is_secret.cache_clear()
    yield
    is_secret.cache_clear()


@pytest.mark.req("J-4")
def test_a_cli_with_only_the_address_hides_the_names_of_the_app(url: str, ledger: Ledger) -> None:
    with App(url, secrets=["iban", "shoe_size"]) as app:
        app.ledger.submit(NewJob("pay", "k:a:b:c:v1", json.dumps({"iban": "DE-77-S3cret", "shoeSize": 42, "order": 1}).encode()))
        leases = app.ledger.claim({"pay": 1}, worker="w")
        app.ledger.settle([lease.dead("permanent", error="refused iban=DE-77-S3cret") for lease in leases])
    secrets._added_names = frozenset()
    is_secret.cache_clear()
    shown = [run("dead", *words, "--ledger", url).stdout for words in (["show", "1"], ["show", "1", "--json"], ["export"])]
    assert all("DE-77-S3cret" not in text for text in shown)
    assert all("order" in text for text in shown)
    open_ledger(url).close()
    assert is_secret("iban")


def test_names_are_written_once(url: str, ledger: Ledger) -> None:
    for _ in range(2):
        with App(url, secrets=["iban"]) as app:
            assert app.ledger.counts() == {}
    with ledger.connections.write.use() as session:
        assert session.core.exec_driver_sql("SELECT name FROM redrive_hidden_name").scalars().all() == ["iban"]


def test_a_blocked_write_of_names_does_not_delay_the_app(url: str, ledger: Ledger) -> None:
    with ledger.begin() as connection:
        connection.exec_driver_sql("DELETE FROM redrive_worker")
        with App(url, secrets=["iban"], migrate=False) as app:
            assert app.ledger.dead_letters() == []


def test_a_running_console_learns_new_names(url: str, ledger: Ledger) -> None:
    with App(url, secrets=["iban"]) as app:
        assert app.ledger.counts() == {}
    secrets._added_names = frozenset()
    is_secret.cache_clear()
    assert not is_secret("iban")
    change_token(ledger)
    assert is_secret("iban")
