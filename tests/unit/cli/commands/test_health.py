"""`redrive doctor` and `redrive audit verify`: findings, fixes and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from redrive.ledger import Ledger, NewJob
from tests.unit.cli.command import call
from tests.unit.cli.conftest import KEY


@pytest.mark.req("O-5")
def test_a_changed_audit_log_is_exit_code_1(busy: Ledger) -> None:
    from sqlalchemy import text

    status, printed = call("audit", "verify")
    anchor = printed.splitlines()[1].removeprefix("Anchor: ")
    assert (status, call("audit", "verify", "--anchor", anchor)[0]) == (0, 0)
    with busy.begin() as tx:
        tx.execute(text("DELETE FROM redrive_audit WHERE number = 4"))
    assert call("audit", "verify")[0] == 0
    missing = "it is missing: entries up to 4 were removed, or the anchor is of another ledger"
    said = f"Audit log changed at entry 4 ({missing}); 3 entries before it unchanged.\n"
    assert call("audit", "verify", "--anchor", anchor, width=200) == (1, said)
    with busy.begin() as tx:
        tx.execute(text("UPDATE redrive_audit SET actor = 'nobody'"))
    status, printed = call("audit", "verify", "--json")
    assert (status, json.loads(printed)["broken"], json.loads(printed)["holds"]) == (1, 1, False)
    assert call("doctor")[0] == 4


def test_the_fixes_of_the_doctor_work(busy: Ledger) -> None:
    from sqlalchemy import text

    with busy.begin() as tx:  # from yesterday, or their number alone would be reported
        tx.execute(text("UPDATE redrive_dead SET created_at = created_at - 86400000000"))
    status, printed = call("doctor")
    assert (status, "Dead letters: " in printed and "waiting for a decision" in printed) == (1, True)
    assert call("dead", "discard", "--reason", "attempts", "--because", "x", "--yes", "--max", "99")[0] == 0
    blocked = "the customer's credentials have expired"
    assert call("dead", "discard", "--reason", blocked, "--because", "x", "--yes", "--max", "99")[0] == 0
    assert call("doctor")[0] == 0
    with busy.begin() as tx:
        tx.execute(text("UPDATE redrive_job SET lease_until = 1 WHERE state = 1"))
        tx.execute(text("DELETE FROM redrive_job WHERE state = 2"))
        tx.execute(text("UPDATE redrive_key SET status = 'processing', lease_until = 1 WHERE user_id = 'ann'"))
    status, printed = call("doctor")
    assert status == 4
    for mend in (
        "redrive ledger reap",
        'redrive ledger recount --because "..."',
        f'redrive keys release "{KEY}" --because "..."',
    ):
        assert f"→ {mend}" in printed
        command = mend.replace('"', "").replace("...", "mended").split()[1:]
        assert call(*command)[0] == 0
    status, printed = call("doctor")
    assert (status, "No problems found." in printed) == (0, True), printed
    assert call("ledger", "reap") == (0, "No expired leases.\n")
    assert call("ledger", "recount", "--because", "x") == (0, "No change: the counts match the rows.\n")
    assert json.loads(call("ledger", "reap", "--json")[1]) == {"jobs": []}
    assert json.loads(call("ledger", "recount", "--because", "x", "--json")[1]) == {"added": {}}


def test_warnings_are_exit_code_1(ledger: Ledger) -> None:
    ledger.submit_many([NewJob("mail", f"{each}") for each in range(12)])
    ledger.settle([lease.dead("attempts") for lease in ledger.claim({"mail": 12}, worker="w")])
    status, printed = call("doctor", "--json")
    told = json.loads(printed)
    assert (status, told["severity"], told["findings"][0]["name"]) == (1, "warning", "dead letters growing")


def test_the_doctor_finds_no_problem_in_a_healthy_ledger(ledger: Ledger) -> None:
    status, printed = call("doctor")
    assert (status, "No worker is online (none seen so far).\nNo problems found.\nChecked: schema, leases" in printed) == (
        0,
        True,
    )
    ledger.submit(NewJob("mail", "a"))
    ledger.settle(ledger.claim({"mail": 1}, worker="w")[0].dead("attempts"))
    status, printed = call("doctor")
    assert (status, "No problems found" in printed) == (1, False)
    assert "1 problem found:" in printed
    assert "Dead letters: 1 waiting for a decision (1 mail)." in printed
    ledger.maintenance.heartbeat("w", {})
    assert "No worker is online" not in call("doctor")[1]


def app_without_ledger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app named in redrive.toml, whose ledger does not exist yet; returns the ledger's file."""
    (folder / "looked_shop.py").write_text("from redrive import App\napp = App('sqlite:///looked.db')\n")
    (folder / "redrive.toml").write_text('app = "looked_shop:app"\n')
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delenv("REDRIVE_LEDGER", raising=False)
    return folder / "looked.db"


@pytest.mark.parametrize(
    "command",
    [
        ("doctor",),
        ("doctor", "looked_shop:app"),
        ("overview",),
        ("jobs", "list", "--ledger", "looked_shop:app"),
        ("ledger", "status", "looked_shop:app"),
        ("dead", "replay", "1", "--because", "fixed"),
        ("state", "inspect"),
    ],
)
def test_read_only_commands_do_not_create_the_ledger_of_an_app(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = app_without_ledger(tmp_path, monkeypatch)
    status, printed = call(*command, width=300)
    assert (status, "no ledger at" in printed, file.exists()) == (3, True, False), printed


def test_doctor_does_not_upgrade_the_ledger_of_an_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from redrive.ledger import open_ledger
    from redrive.ledger.db.schema import migrate

    file = app_without_ledger(tmp_path, monkeypatch)
    assert call("ledger", "migrate", "looked_shop:app")[0] == 0
    with open_ledger(f"sqlite:///{file}") as ledger, ledger.connections.write.use() as session:
        migrate(session, "0001", shown="looked")
    status, printed = call("doctor", width=300)
    assert (status, "→ redrive ledger migrate --ledger looked_shop:app" in printed) == (4, True), printed
    assert call("doctor")[0] == 4
