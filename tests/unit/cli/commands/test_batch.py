"""`redrive batch`: output at every width, errors, exit codes, no secrets."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from getpass import getuser
from pathlib import Path

import pytest
from rich.cells import cell_len

from redrive import App
from redrive.ledger import Ledger
from tests.unit.cli.command import call, on_terminal, run
from tests.unit.cli.conftest import SECRET

SHOWN = [
    ("batch", "status"),
    ("batch", "giveups"),
    ("batch", "giveups", "--batch", "tiles"),
    ("batch", "reopen", "tiles", "t1", "t5", "--because", "x", "--dry-run"),
    ("batch", "reopen", "tiles", "--reason", "checksum", "--because", "x", "--dry-run"),
]


@pytest.fixture
def sent_app(url: str) -> App:
    """Twelve tiles given up, two pending, one accepted, and an item with a long name."""
    with App(url) as made:
        items = made.items("tiles")
        ids = [f"t{n}" for n in range(15)]
        for _ in range(5):
            items.increment_many(ids)
        items.give_up_many({f"t{n}": f"checksum mismatch, token={SECRET}\nand more" for n in range(12)})
        items.acknowledge_many(["t14"])
        made.items("signals").give_up("a-very-long-name-of-an-item-" * 4, "\x1b[31mred")
    return made


@pytest.mark.parametrize("arguments", SHOWN, ids=" ".join)
@pytest.mark.usefixtures("sent_app")
def test_output_fits_the_terminal_and_has_no_secrets(arguments: tuple[str, ...]) -> None:
    for width in (60, 80, 120):
        status, printed = call(*arguments, width=width)
        assert status == 0
        assert max(cell_len(line) for line in printed.splitlines()) <= width, width
        assert SECRET not in printed
        assert "\x1b" not in printed


@pytest.mark.parametrize("arguments", SHOWN, ids=" ".join)
@pytest.mark.usefixtures("sent_app")
def test_json_is_one_document_without_secrets(arguments: tuple[str, ...]) -> None:
    _, printed = call(*arguments, "--json")
    json.loads(printed)
    assert SECRET not in printed


@pytest.mark.usefixtures("sent_app")
def test_status_and_giveups_show_counts_and_reasons() -> None:
    _, printed = call("batch", "status")
    assert printed.split()[:4] == ["batch", "pending", "given", "up"]
    assert [line.split()[:4] for line in printed.splitlines()[1:3]] == [["signals", "0", "1", "0"], ["tiles", "2", "12", "1"]]
    _, printed = call("batch", "giveups", "--batch", "tiles", "--limit", "3")
    assert "use --limit for more." in printed
    assert call("batch", "giveups", "--reason", "nothing")[1] == "No given-up item matches.\n"
    found = json.loads(call("batch", "giveups", "--reason", "CHECKSUM", "--since", "1h", "--json")[1])
    assert {one["attempts"] for one in found} == {5}
    assert len(found) == 12


@pytest.mark.usefixtures("sent_app")
def test_the_overview_counts_pending_items() -> None:
    printed = call("overview", width=160)[1]
    assert "Batches: 2 items rejected and sent again by the next call (2 tiles); see `redrive batch status`." in printed
    assert "No jobs, partitions" not in printed
    assert json.loads(call("overview", "--json")[1])["pending_items"] == {"tiles": 2}


@pytest.mark.req("B-13")
@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("item", ["o'brien 7", "-7", "--yes"])
def test_the_suggested_command_reopens_a_listed_item(url: str, item: str) -> None:
    with App(url) as made:
        made.items("tiles of today").give_up(item, "422 checksum mismatch")
    _, printed = call("batch", "giveups", width=200)
    (command,) = [line.removeprefix("→ ") for line in printed.splitlines() if line.startswith("→")]
    words = shlex.split(command.replace("...", "rendered anew"))
    assert words[:3] == ["redrive", "batch", "reopen"]
    assert "tiles of today" in words
    status, printed = call(*words[1:])
    assert (status, f"Reopened: {item}" in printed) == (0, True)


@pytest.mark.usefixtures("ledger")
def test_an_empty_ledger_has_no_rejected_items() -> None:
    assert call("batch", "status")[1] == "No rejected items.\n"
    assert call("batch", "giveups")[1] == "No given-up items.\n"
    assert call("batch", "reopen", "tiles", "--reason", "x", "--because", "y") == (
        0,
        "No given-up item of tiles matches.\n",
    )


@pytest.mark.req("B-13")
def test_items_are_reopened_by_id(sent_app: App) -> None:
    status, printed = call("batch", "reopen", "tiles", "t1", "t2", "t13", "--because", "rendered anew", "--actor", "ann")
    assert status == 1
    assert printed.splitlines()[1:] == ["Skipped t13: it is not given up", "Reopened: t1", "Reopened: t2"]
    assert "To reopen: 2 items of tiles (checksum mismatch" in printed
    with sent_app as made:
        assert made.items("tiles").pending(["t1", "t3"]) == {"t1"}
        (entry,) = made.ledger.audit()
    assert (entry.actor, entry.action, entry.because) == ("ann", "batch.reopen", "rendered anew")
    for batch, item, why in (
        ("s001", "t1", "the ledger has no rejected items of a batch 's001'"),
        ("tiles", "t99", "it was never rejected in tiles, or does not exist"),
    ):
        assert call("batch", "reopen", batch, item, "--because", "x") == (1, f"Skipped {item}: {why}\n")
    _, printed = call("batch", "reopen", "tiles", "t3", "--because", "x", "--json")
    assert json.loads(printed)["done"] == ["t3"]


@pytest.mark.req("B-13")
@pytest.mark.usefixtures("sent_app")
def test_a_selection_of_items_is_confirmed(url: str) -> None:
    many = ("batch", "reopen", "tiles", "--reason", "checksum", "--because", "an outage", "--ledger", url)
    refused = run(*many)
    assert refused.returncode == 2
    assert "pass --yes --max 12 to reopen 12. Nothing was changed" in refused.stderr
    assert run(*many, "--yes").returncode == 2
    assert run(*many, "--yes", "--max", "5").returncode == 1
    status, printed = on_terminal(*many, typed="7")
    assert (status, "nothing was changed" in printed) == (1, True)
    status, printed = on_terminal(*many, typed="12")
    assert (status, "Reopened: 12 items" in printed) == (0, True)


WIRING = """
from sqlalchemy import Column, Integer, MetaData, Table, Text, create_engine, insert
from redrive.batch import TableItems
engine = create_engine("sqlite:///tiles.db")
tiles = Table("tiles", MetaData(), Column("id", Text, primary_key=True), Column("n", Integer), Column("s", Text))
items = TableItems(engine, id=tiles.c.id, attempts=tiles.c.n, status=tiles.c.s)
def fill():
    tiles.create(engine)
    with engine.begin() as tx:
        tx.execute(insert(tiles), [{"id": f"t{n}", "n": 5, "s": "giveup" if n < 3 else "pending"} for n in range(5)])
nothing = 7
"""


@pytest.mark.req("B-13")
def test_items_of_a_table_in_user_code_are_reopened(
    url: str, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wiring.py").write_text(WIRING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    subprocess.run([sys.executable, "-c", "import wiring; wiring.fill()"], check=True)
    own = ("--items", "wiring:items")
    listed = run("batch", "giveups", *own).stdout
    assert listed.split("\n\n")[0].split() == ["item", "rejected", "t0", "5", "t1", "5", "t2", "5"]
    assert '→ redrive batch reopen tiles t0 --items wiring:items --because "..."' in listed
    assert "--limit" not in listed
    cut = run("batch", "giveups", *own, "--limit", "2").stdout
    assert "Showing the first 2; use --limit for more." in cut
    assert "redrive batch reopen" in cut
    done = run("batch", "reopen", "tiles", "t1", "t4", *own, "--because", "mended", "--actor", "ann", "--ledger", url)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1:] == ["Skipped t4: it is not given up (state 'pending')", "Reopened: t1"]
    assert [one["item"] for one in json.loads(run("batch", "giveups", *own, "--json").stdout)] == ["t0", "t2"]
    (entry,) = ledger.audit()
    via = f"account {getuser()}"
    assert (entry.actor, entry.what) == ("ann", {"batch": "tiles", "store": "wiring:items", "items": ["t1"], "via": via})
    for wrong, said in (
        ("wiring", "pass module:object"),
        ("wiring:nothing", "wiring:nothing is an int, not a TableItems"),
        ("wiring:item", "did you mean"),
    ):
        refused = run("batch", "giveups", "--items", wrong)
        assert (refused.returncode, said in refused.stderr) == (2, True)
    assert run("batch", "reopen", "tiles", *own, "--because", "x", "--ledger", url).returncode == 2
    named = run("batch", "reopen", "tils", "t0", *own, "--because", "x", "--ledger", url)
    assert (named.returncode, "unknown batch 'tils': wiring:items has the items of 'tiles'" in named.stderr) == (2, True)
    missing = run("batch", "reopen", "tiles", "t99", *own, "--because", "x", "--ledger", url)
    assert (missing.returncode, missing.stdout) == (1, "Skipped t99: there is no such item\n")
    by_reason = run("batch", "reopen", "tiles", *own, "--reason", "410", "--because", "x", "--ledger", url)
    assert (by_reason.returncode, "cannot be used with --items" in by_reason.stderr) == (2, True)
    assert len(ledger.audit()) == 1


@pytest.mark.req("B-13")
def test_items_in_user_code_are_reopened_without_a_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wiring.py").write_text(WIRING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("REDRIVE_LEDGER", raising=False)
    subprocess.run([sys.executable, "-c", "import wiring; wiring.fill()"], check=True)
    reopen = ("batch", "reopen", "tiles", "--items", "wiring:items", "--because", "rendered anew")
    done = run(*reopen, "t0")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["To reopen: 1 item of tiles (no reason ×1)", "Reopened: t0"])
    assert "ledger: not found, so this is not recorded in an audit log; pass --ledger to record it" in done.stderr
    assert not (tmp_path / "redrive.db").exists()
    assert json.loads(run(*reopen, "t1", "t4", "--json").stdout)["done"] == ["t1"]
    assert run(*reopen, "t2", "--dry-run").stdout.splitlines() == [
        "To reopen: 1 item of tiles (no reason ×1)",
        "Dry run: nothing was changed.",
    ]
    without = run("batch", "giveups")
    assert (without.returncode, "pass --items module:object" in without.stderr) == (3, True)
    found = json.loads(run("batch", "giveups", "--items", "wiring:items", "--json").stdout)
    assert found == [{"item": "t2", "attempts": 5, "reason": None}]
    # A named ledger must exist.
    named = run(*reopen, "t2", "--ledger", "postgresql://nobody@127.0.0.1:9/x")
    assert named.returncode == 3
    assert run("batch", "reopen", "tiles", "t2", "--items", "wiring:items", "--because", " ").returncode == 2


REASONS = """
items = TableItems(engine, id=tiles.c.id, attempts=tiles.c.n, status=tiles.c.s, reason=tiles.c.why)
def give_up():
    items.give_up_many({"t3": "422 checksum, token=SECRET", "t4": "404"})
"""


def test_reasons_of_items_in_user_code_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wiring = WIRING.replace('Column("s", Text))', 'Column("s", Text), Column("why", Text))')
    (tmp_path / "wiring.py").write_text(wiring + REASONS.replace("SECRET", SECRET))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    subprocess.run([sys.executable, "-c", "import wiring; wiring.fill(); wiring.give_up()"], check=True)
    listed = run("batch", "giveups", "--items", "wiring:items")
    assert listed.stdout.splitlines()[0].split() == ["item", "rejected", "reason"]
    assert listed.stdout.splitlines()[4].split() == ["t3", "5", "422", "checksum,", "token=[redacted]"]
    narrowed = run("batch", "giveups", "--items", "wiring:items", "--reason", "CHECKSUM", "--json")
    assert [item["item"] for item in json.loads(narrowed.stdout)] == ["t3"]
    assert run("batch", "giveups", "--items", "wiring:items", "--since", "1h").returncode == 2
    (tmp_path / "tiles.db").unlink()
    gone = run("batch", "giveups", "--items", "wiring:items")
    assert (gone.returncode, "wiring:items: the database failed: " in gone.stderr) == (2, True)
    assert "Traceback" not in gone.stderr


@pytest.mark.usefixtures("sent_app")
def test_invalid_selections_of_items_are_rejected(url: str) -> None:
    nothing = run("batch", "reopen", "tiles", "--because", "x", "--ledger", url)
    assert (nothing.returncode, nothing.stderr.startswith("redrive: no items selected")) == (2, True)
    empty = run("batch", "reopen", "tiles", "t1", "--because", " ", "--ledger", url)
    assert (empty.returncode, "must say why" in empty.stderr) == (2, True)
    assert run("batch", "reopen", "tiles", "t1", "--ledger", url).returncode == 2
    assert run("batch", "status", "--ledger", "postgresql://nobody@127.0.0.1:9/x").returncode == 3
