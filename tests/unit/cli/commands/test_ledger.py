"""`redrive ledger`: tables are created and upgraded, and how a ledger is found."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from redrive.ledger import Ledger
from redrive.ledger.db.tables import worker
from tests.unit.cli.command import call
from tests.unit.cli.conftest import SECRET


def test_tables_are_created_and_upgraded(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert call("ledger", "status", "--ledger", url)[0] == 3
    assert call("doctor", "--ledger", url)[0] == 3
    assert not (tmp_path / "new.db").exists()
    assert call("ledger", "migrate", "--ledger", url, width=300)[1].startswith(f"Made the ledger {url}, revision ")
    assert call("ledger", "migrate", "--ledger", url, width=300)[1].startswith("Nothing to do: ")
    from redrive.ledger import open_ledger
    from redrive.ledger.db.schema import migrate

    with open_ledger(url) as ledger, ledger.connections.write.use() as session:
        migrate(session, "0001", shown=url)
    status, printed = call("doctor", "--ledger", url, width=300)
    assert (status, f"→ redrive ledger migrate --ledger {url}\n" in printed) == (4, True), printed
    told = json.loads(call("doctor", "--ledger", url, "--json")[1])
    assert told["findings"][0]["mend"] == f"redrive ledger migrate --ledger {url}"
    assert call("dead", "list", "--ledger", url)[0] == 3
    told = json.loads(call("ledger", "migrate", "--ledger", url, "--json")[1])
    assert (told["before"], told["changed"]) == ("0001", True)


def test_a_ledger_is_migrated_by_the_name_of_its_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_shop.py").write_text("from redrive import App\napp = App('sqlite:///named.db', migrate=False)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    status, printed = call("doctor", "named_shop:app")
    assert (status, (tmp_path / "named.db").exists()) == (3, False), printed
    assert call("ledger", "migrate", "named_shop:app", width=300)[1].startswith("Made the ledger sqlite:///")
    assert call("ledger", "migrate", "--ledger", "named_shop:app", width=300)[1].startswith("Nothing to do: ")
    assert call("ledger", "status", "named_shop:app")[0] == 0
    assert call("doctor", "named_shop:app")[0] == 0
    status, printed = call("ledger", "migrate", "named_shop:app", "--ledger", "sqlite:///other.db")
    assert (status, "pass the ledger once" in printed) == (2, True)
    assert not (tmp_path / "other.db").exists()


def test_the_database_of_another_program_is_not_migrated(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE redrive_job (x)")
    connection.close()
    for command in (("ledger", "migrate"), ("ledger", "status"), ("dead", "list")):
        status, printed = call(*command, "--ledger", f"sqlite:///{tmp_path / 'other.db'}")
        assert (status, "another program" in printed) == (3, True)
    status, printed = call("doctor", "--ledger", f"sqlite:///{tmp_path / 'other.db'}")
    assert (status, "pass the address of another database" in printed) == (4, True)
    (tmp_path / "text.db").write_text("no database " * 100)
    assert call("ledger", "status", "--ledger", f"sqlite:///{tmp_path / 'text.db'}")[0] == 3


@pytest.mark.req("J-4")
@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://ann:{SECRET}@127.0.0.1:1/shop",
        f"postgresql://127.0.0.1:1/shop?user=ann&password={SECRET}",
        f"mysql://ann:{SECRET}@db/shop",
        f"postgresql://ann:{SECRET}@127.0.0.1:port/shop",
        f"postgresql://ann:{SECRET}@/",
    ],
)
@pytest.mark.parametrize("command", [("ledger", "status"), ("ledger", "migrate"), ("doctor",), ("dead", "list")])
def test_an_unreachable_ledger_is_exit_code_3_without_its_password(address: str, command: tuple[str, ...]) -> None:
    status, printed = call(*command, "--ledger", address)
    assert status == (3 if "127.0.0.1:1/" in address else 2)  # 2: not a valid address
    assert printed.startswith("redrive: ")
    assert SECRET not in printed
    assert "Traceback" not in printed


def test_a_lost_worker_has_the_same_word_in_both_lists(ledger: Ledger) -> None:
    ledger.maintenance.heartbeat("w1", {"app": "shop"})
    ended = update(worker).values(ended_at=ledger.now() + timedelta(seconds=30))
    with ledger.begin() as connection:
        connection.execute(ended)
    assert "✗ lost" in call("workers", "list")[1]
    printed = call("ledger", "status")[1]
    assert (", lost" in printed, ", stopped" in printed) == (True, False)


def test_the_ledger_comes_from_option_environment_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shopping.py").write_text(f"from redrive import App\napp = App({url!r})\nclass Box: inner = app\nother = 7\n")
    for named in ("shopping:app", "shopping:Box.inner"):
        assert call("ledger", "status", "--ledger", named)[0] == 0
    assert call("ledger", "migrate", "--ledger", "shopping:app")[1].startswith("Nothing to do")
    assert call("ledger", "status", REDRIVE_LEDGER="shopping:app")[0] == 0
    for named, said in (
        ("shopping:other", "must be an App or a Ledger, not int"),
        ("shopping:ap", "did you mean 'app'?"),
        ("nowhere:app", "module nowhere cannot be imported"),
        ("shopping", "'shopping' is not a ledger; pass its address"),
        ("/data/shop.db", "'/data/shop.db' is a file, not an address; did you mean sqlite:////data/shop.db?"),
    ):
        status, printed = call("ledger", "status", "--ledger", named)
        assert (status, said in printed) == (2, True), printed
    monkeypatch.delenv("REDRIVE_LEDGER")
    status, printed = call("ledger", "status")
    assert (status, "set the ledger with --ledger, REDRIVE_LEDGER or redrive.toml" in printed) == (3, True)
