"""The operator's commands: what they print, at every width; what they refuse; their exit status; never a secret."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.cells import cell_len
from typer.testing import CliRunner

from redrive.cli.root import app
from redrive.ledger import Ledger, NewJob
from tests.unit.cli.command import PROGRAM, on_terminal, run
from tests.unit.cli.conftest import SECRET

KEY = "shop:ann:o-1:charge:v1"
SHOWN = [
    ("ledger", "status"),
    ("dead", "list"),
    ("dead", "list", "--status", "all"),
    ("dead", "show", "1"),
    ("dead", "show", "6"),
    ("dead", "replay", "4", "1", "99", "--because", "x", "--dry-run"),
    ("sweeps", "list"),
    ("sweeps", "show", "1"),
    ("keys", "list"),
    ("keys", "show", KEY),
    ("keys", "show", "shop:bob:o-2:charge:v1"),
    ("audit", "list"),
    ("audit", "verify"),
    ("doctor",),
]


def call(*arguments: str, width: int = 100, **environment: str) -> tuple[int, str]:
    """In this process."""
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(width), "NO_COLOR": "1"} | environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("arguments", SHOWN, ids=" ".join)
@pytest.mark.usefixtures("busy")
def test_it_fits_the_terminal_and_tells_no_secret(arguments: tuple[str, ...], width: int) -> None:
    _, printed = call(*arguments, width=width)
    assert max(cell_len(line) for line in printed.splitlines()) <= width
    assert SECRET not in printed
    assert "Traceback" not in printed


@pytest.mark.req("J-4")
@pytest.mark.parametrize("arguments", SHOWN, ids=" ".join)
@pytest.mark.usefixtures("busy")
def test_json_is_one_document_without_secrets(arguments: tuple[str, ...]) -> None:
    _, printed = call(*arguments, "--json")
    json.loads(printed)
    assert SECRET not in printed


@pytest.mark.usefixtures("busy")
def test_dead_letters_are_listed_and_narrowed_down() -> None:
    status, printed = call("dead", "list", width=160)
    assert status == 0
    assert printed.startswith("9 dead letters: attempts ×7, the customer's credentials have expired ×2\n")
    assert "crm.sync" in printed
    assert "HTTPStatusError: 503 for https://" in printed
    assert call("dead", "list", "--kind", "nobody")[1] == "no dead letter matches; 9 pending in all\n"
    assert call("dead", "list", "--since", "1h", "--error", "httpstatus", "--reason", "attempts")[1].startswith("7 dead letters")
    assert "The newest 2 dead letters" in call("dead", "list", "--limit", "2")[1]
    assert "discarded" in call("dead", "list", "--status", "all")[1]
    assert call("dlq", "list")[1].split("\n")[0] == printed.split("\n")[0]
    assert [letter["id"] for letter in json.loads(call("dead", "list", "--json", "--status", "discarded")[1])] == [3]


def test_empty_states_say_how_it_is(ledger: Ledger) -> None:
    assert call("ledger", "status", width=300)[1].splitlines()[1:] == [
        "Nothing was submitted yet.",
        "",
        "No worker was seen yet.",
    ]
    assert call("keys", "list")[1].startswith("no keys: nothing was done under one yet")
    assert call("audit", "list")[1].startswith("nobody has decided anything yet")
    assert "The audit holds: 0 entries" in call("audit", "verify")[1]
    assert call("doctor")[0] == 0
    ledger.submit(NewJob("mail", "a"))
    ledger.settle(ledger.claim({"mail": 1}, worker="w")[0].done())
    expected = "nothing is dead: 1 submitted = 1 done + 0 waiting + 0 running + 0 dead + 0 discarded or replayed\n"
    assert call("dead", "list") == (0, expected)
    assert call("keys", "list", "--user", "x") == (0, "no key matches\n")
    assert call("audit", "list", "--by", "x") == (0, "no decision matches\n")
    assert call("dead", "replay", "--kind", "mail", "--because", "x") == (
        0,
        "nothing to replay: no dead letter that is pending matches\n",
    )


@pytest.mark.usefixtures("busy")
def test_one_dead_letter_is_shown_with_all_there_is() -> None:
    _, printed = call("dead", "show", "1")
    for said in (
        "Dead letter 1",
        "replaying, replayed once",
        "request_id  r-1",
        '"password": "[redacted]"',
        "authorization  [redacted]",
        "replaced by a replay, 1 attempt",
        "the replay of job",
        "by web-7f9c:1201",
        " UTC",
    ):
        assert said in printed
    assert 'redrive dead replay 6 --because "..."' in call("dead", "show", "6")[1]
    assert call("dead", "show", "99") == (1, "redrive: there is no dead letter 99; `redrive dead list --status all` lists them\n")


def test_some_are_replayed_and_discarded_by_number(busy: Ledger) -> None:
    status, printed = call("dead", "replay", "4", "5", "--because", "fixed", "--actor", "carol")
    assert status == 0
    assert printed.splitlines()[0] == "To replay: 2 dead letters (crm.sync ×2; attempts ×2)"
    assert printed.splitlines()[1].startswith("Dead letter 4 replayed: job ")
    assert call("dead", "discard", "6", "--because", "old", "--actor", "carol")[0] == 0
    status, printed = call("dead", "discard", "7", "4", "77", "--because", "old", "--actor", "carol")
    assert status == 1
    assert "Not 4: replaying already\nNot 77: there is none\n" in printed
    assert [(one.actor, one.action) for one in busy.audit(after=4)] == [
        ("carol", "dead.replay"),
        ("carol", "dead.discard"),
        ("carol", "dead.discard"),
    ]
    assert busy.imbalance() == []


def test_who_it_was_is_the_user_unless_somebody_else_is_named(busy: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "dora")
    assert call("dead", "replay", "4", "--because", "fixed")[0] == 0
    assert busy.audit()[-1].actor == "dora"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("dead", "replay", "4"), 2, "Missing option '--because'"),
        (("dead", "replay", "4", "--because", " "), 2, "because= must say why"),
        (("dead", "replay", "--because", "x"), 2, "say which: by number, or by kind"),
        (("dead", "replay", "--kind", "crm.sync", "--because", "x"), 2, "say --yes --max 3: nothing was done"),
        (("dead", "replay", "--kind", "crm.sync", "--because", "x", "--yes"), 2, "--yes needs --max"),
        (("dead", "replay", "--kind", "crm.sync", "--because", "x", "--yes", "--max", "1"), 1, "3 match, and --max says 1"),
        (("dead", "replay", "four", "--because", "x"), 2, "valid integer"),
        (("dead", "list", "--since", "yesterday"), 2, "'yesterday' is no moment"),
        (("dead", "list", "--since", "999999999999d"), 2, "longer ago than there are dates"),
        (("dead", "list", "--limit", "0"), 2, "--limit"),
        (("dead", "list", "--status", "odd"), 2, "--status"),
        (("keys", "show", "a:b"), 2, "a key has at least 5 parts"),
        (("keys", "show", "a:b:c:d:e"), 1, "nothing is stored under a:b:c:d:e: it is free"),
        (("keys", "release", "a:b:c:d:e", "--because", "x"), 1, "there is no key a:b:c:d:e"),
        (("keys", "release", KEY, "--because", ""), 2, "because= must say why"),
        (("keys", "release", KEY), 2, "Missing option '--because'"),
        (("audit", "verify", "--anchor", "7"), 2, "an anchor is a number and a hash"),
        (("ledger", "recount", "--because", ""), 2, "because= must say why"),
        (("dead", "list", "--actor", "x"), 2, "No such option"),
        (("dead", "replay", "4", "--because", "x", "--actor", ""), 2, "actor= must say who"),
    ],
)
def test_what_is_refused_changes_nothing(busy: Ledger, arguments: tuple[str, ...], status: int, said: str) -> None:
    before = busy.dead_letters(), busy.audit()
    found, printed = call(*arguments)
    assert (found, said in printed) == (status, True), printed
    assert (busy.dead_letters(), busy.audit()) == before


def test_a_script_says_yes_and_how_many_at_most(busy: Ledger) -> None:
    asked = ("dead", "replay", "--kind", "crm.sync", "--error", "503", "--because", "fixed")
    assert call(*asked, "--dry-run")[0] == 0
    assert len(busy.audit()) == 4
    status, printed = call(*asked, "--yes", "--max", "2", "--json")
    told = json.loads(printed)
    assert status == 0
    assert (told["plan"]["ids"], sorted(told["done"]), told["skipped"]) == ([4, 5], ["4", "5"], {})
    assert call(*asked, "--yes", "--max", "0")[0] == 0  # nothing is left to replay


def test_a_limit_is_told(busy: Ledger) -> None:
    status, printed = call("dead", "discard", "--reason", "attempts", "--limit", "3", "--because", "old", "--yes", "--max", "3")
    assert status == 0
    assert "More match, beyond --limit." in printed
    assert len(busy.dead_letters(status="pending", reason="attempts")) == 4


@pytest.mark.req("O-5")
def test_at_a_terminal_the_number_is_typed(url: str, busy: Ledger) -> None:
    asked = ("dead", "replay", "--kind", "crm.sync", "--error", "503", "--because", "fixed")
    status, printed = on_terminal(*asked, typed="3", REDRIVE_LEDGER=url)
    assert (status, "nothing was done" in printed) == (1, True), printed
    assert len(busy.audit()) == 4
    status, printed = on_terminal(*asked, typed="2", REDRIVE_LEDGER=url)
    assert (status, "Dead letter 4 replayed" in printed) == (0, True), printed
    assert [entry.because for entry in busy.audit(after=4)] == ["fixed"]


def test_keys_are_released(busy: Ledger) -> None:
    assert call("keys", "release", KEY, "--because", "wrong answer") == (0, f"Released: {KEY} (was completed)\n")
    assert call("keys", "show", KEY)[0] == 1
    assert busy.audit()[-1].action == "key.release"
    assert json.loads(call("keys", "release", "shop:bob:o-2:charge:v1", "--because", "x", "--json")[1])["status"] == "failed"


@pytest.mark.req("O-5")
def test_a_broken_audit_is_status_1(busy: Ledger) -> None:
    from sqlalchemy import text

    status, printed = call("audit", "verify")
    anchor = printed.splitlines()[1].removeprefix("Anchor: ")
    assert (status, call("audit", "verify", "--anchor", anchor)[0]) == (0, 0)
    with busy.begin() as tx:
        tx.execute(text("DELETE FROM redrive_audit WHERE number = 4"))
    assert call("audit", "verify")[0] == 0
    assert call("audit", "verify", "--anchor", anchor) == (
        1,
        "Entry 4: it was removed: entry 4 was noted, and is not there. Up to entry 3 the audit holds.\n",
    )
    with busy.begin() as tx:
        tx.execute(text("UPDATE redrive_audit SET actor = 'nobody'"))
    status, printed = call("audit", "verify", "--json")
    assert (status, json.loads(printed)["broken"], json.loads(printed)["holds"]) == (1, 1, False)
    assert call("doctor")[0] == 4


def test_the_doctor_says_what_mends_it_and_that_mends_it(busy: Ledger) -> None:
    from sqlalchemy import text

    with busy.begin() as tx:  # of yesterday, or their number alone is worth a word
        tx.execute(text("UPDATE redrive_dead SET created_at = created_at - 86400000000"))
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
    assert (status, "All is well" in printed) == (0, True), printed
    assert call("ledger", "reap") == (0, "No lease has run out.\n")
    assert call("ledger", "recount", "--because", "x") == (0, "Nothing to do: the counts agree with the rows.\n")
    assert json.loads(call("ledger", "reap", "--json")[1]) == {"jobs": []}
    assert json.loads(call("ledger", "recount", "--because", "x", "--json")[1]) == {"added": {}}


def test_warnings_are_status_1(ledger: Ledger) -> None:
    ledger.submit_many([NewJob("mail", f"{each}") for each in range(12)])
    ledger.settle([lease.dead("attempts") for lease in ledger.claim({"mail": 12}, worker="w")])
    status, printed = call("doctor", "--json")
    told = json.loads(printed)
    assert (status, told["severity"], told["findings"][0]["name"]) == (1, "warning", "dead letters growing")


def test_tables_are_made_and_brought_up(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert call("ledger", "status", "--ledger", url)[0] == 3
    assert call("doctor", "--ledger", url)[0] == 3
    assert not (tmp_path / "new.db").exists()
    assert call("ledger", "migrate", "--ledger", url, width=300)[1].startswith(f"Made the ledger {url}, revision ")
    assert call("ledger", "migrate", "--ledger", url, width=300)[1].startswith("Nothing to do: ")
    from redrive.ledger import open_ledger
    from redrive.ledger.schema import migrate

    with open_ledger(url) as ledger, ledger.connections.write.use() as session:
        migrate(session, "0001")
    status, printed = call("doctor", "--ledger", url, width=300)
    assert (status, "→ redrive ledger migrate" in printed) == (4, True), printed
    assert call("dead", "list", "--ledger", url)[0] == 3
    told = json.loads(call("ledger", "migrate", "--ledger", url, "--json")[1])
    assert (told["before"], told["changed"]) == ("0001", True)


def test_another_program_s_database_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE redrive_job (x)")
    connection.close()
    for command in (("ledger", "migrate"), ("ledger", "status"), ("dead", "list")):
        status, printed = call(*command, "--ledger", f"sqlite:///{tmp_path / 'other.db'}")
        assert (status, "another program" in printed) == (3, True)
    status, printed = call("doctor", "--ledger", f"sqlite:///{tmp_path / 'other.db'}")
    assert (status, "give another address" in printed) == (4, True)
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
def test_a_ledger_that_cannot_be_reached_is_status_3_and_its_password_is_not_told(address: str, command: tuple[str, ...]) -> None:
    status, printed = call(*command, "--ledger", address)
    assert status == 3
    assert printed.startswith("redrive: ")
    assert SECRET not in printed
    assert "Traceback" not in printed


def test_where_the_ledger_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shopping.py").write_text(f"from redrive import App\napp = App({url!r})\nclass Box: inner = app\nother = 7\n")
    for named in ("shopping:app", "shopping:Box.inner"):
        assert call("ledger", "status", "--ledger", named)[0] == 0
    assert call("ledger", "migrate", "--ledger", "shopping:app")[1].startswith("Nothing to do")
    assert call("ledger", "status", REDRIVE_LEDGER="shopping:app")[0] == 0
    for named, said in (
        ("shopping:other", "neither an App nor a Ledger, but int"),
        ("shopping:ap", "did you mean 'app'?"),
        ("nowhere:app", "module nowhere cannot be imported"),
        ("shopping", "'shopping' is no ledger: give its address"),
    ):
        status, printed = call("ledger", "status", "--ledger", named)
        assert (status, said in printed) == (2, True), printed
    monkeypatch.delenv("REDRIVE_LEDGER")
    status, printed = call("ledger", "status")
    assert (status, "say where the ledger is by --ledger, or by REDRIVE_LEDGER" in printed) == (3, True)


HOSTILE = "\x1b[2J\x1b]0;owned\x07 \x9b31m boo\u202eknird\r\nnext"


def test_other_people_s_words_are_no_commands_to_the_terminal(url: str, ledger: Ledger) -> None:
    ledger.submit(NewJob("mail", "a", HOSTILE.encode(), headers={"x": HOSTILE}, ids={"y": HOSTILE}))
    ledger.settle(ledger.claim({"mail": 1}, worker="w")[0].dead(HOSTILE, error=HOSTILE, signature=HOSTILE))
    ledger.record(actor=HOSTILE, action="test", because=HOSTILE, what={"z": HOSTILE})
    for arguments in (
        ("dead", "list"),
        ("dead", "show", "1"),
        ("audit", "list"),
        ("dead", "show", "1", "--json"),
        ("audit", "list", "--json"),
    ):
        printed = run(*arguments, REDRIVE_LEDGER=url).stdout + on_terminal(*arguments, REDRIVE_LEDGER=url)[1].replace(
            "\r\n", "\n"
        )
        assert "boo" in printed
        for sign in ("\x1b]", "\x1b[2J", "\x9b", "\x07", "\u202e", "\r"):
            assert sign not in printed, (arguments, sign)


@pytest.mark.usefixtures("busy")
def test_as_a_process(url: str) -> None:
    done = run("dead", "list", REDRIVE_LEDGER=url)
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(line.endswith(" ") for line in done.stdout.splitlines())
    assert "\x1b[" not in done.stdout
    refused = run("dead", "replay", "--kind", "crm.sync", "--because", "x", REDRIVE_LEDGER=url)
    assert (refused.returncode, "from a script" in refused.stderr) == (2, True)
    line = f"'{sys.executable}' -c '{PROGRAM}' dead list --status all | head -1"
    piped = subprocess.run(line, shell=True, env=os.environ | {"REDRIVE_LEDGER": url}, capture_output=True, text=True)
    assert (piped.returncode, piped.stderr) == (0, "")


def test_ctrl_c_leaves_whole_steps(url: str, ledger: Ledger) -> None:
    ledger.submit_many([NewJob("mail", f"{each}") for each in range(600)])
    ledger.settle([lease.dead("attempts") for lease in ledger.claim({"mail": 600}, worker="w")])
    slow = f"""if True:
        import time
        from redrive.ops import sweep
        quick = sweep.carried_out
        def applied(*args, **options):
            for step in quick(*args, **options):
                yield step
                print("step", flush=True)
                time.sleep(0.5)
        sweep.carried_out = applied
        {PROGRAM}
    """
    asked = ["dead", "discard", "--kind", "mail", "--limit", "600", "--because", "x", "--yes", "--max", "600"]
    with subprocess.Popen(
        [sys.executable, "-c", slow, *asked], env=os.environ | {"REDRIVE_LEDGER": url}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        while "step" not in process.stdout.readline():
            pass
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, "redrive sweeps resume 1" in said, "Traceback" in said) == (130, True, False), said
    left = len(ledger.dead_letters(status="pending", limit=1000))
    assert left % 100 == 0
    assert 0 < left < 600
    (stopped,) = ledger.sweeps.list()
    assert (stopped.state, stopped.made) == ("running", 600 - left)
    assert ledger.imbalance() == []
    assert call("sweeps", "resume", "1", "--because", "the train came through", REDRIVE_LEDGER=url)[0] == 0
    assert ledger.dead_letters(status="pending") == []


@pytest.mark.req("M-4")
def test_a_canary_and_a_rate_are_written_down_and_steered(busy: Ledger) -> None:
    asked = ("dead", "replay", "--kind", "crm.sync", "--error", "503", "--because", "fixed", "--yes", "--max", "9")
    status, printed = call(*asked, "--canary", "1", "--rate", "5", "--detach")
    assert (status, printed.splitlines()[-1]) == (
        0, "Sweep 2 is written down: workers carry it out; `redrive sweeps show 2`",
    )  # fmt: skip
    assert call("sweeps", "list")[1].splitlines()[1].split()[:3] == ["2", "replay", "running"]
    assert "the first 1" in call("sweeps", "show", "2")[1]
    assert call("sweeps", "pause", "2", "--because", "wait")[:2] == (0, "Sweep 2 is paused: 0 of 2 done, 2 left\n")
    assert call("sweeps", "pause", "2", "--because", "wait")[0] == 1
    assert call("sweeps", "resume", "2", "--because", "go", "--detach")[0] == 0
    assert call("sweeps", "cancel", "2", "--because", "never mind")[:2] == (0, "Sweep 2 is cancelled: 0 of 2 done, 2 left\n")
    assert call("sweeps", "show", "9")[0] == 1
    said = [(entry.action, entry.because) for entry in busy.audit()[-4:]]
    assert said == [("dead.replay", "fixed"), ("sweep.pause", "wait"), ("sweep.resume", "go"), ("sweep.cancel", "never mind")]


def commands(group: Any, *names: str) -> list[tuple[str, ...]]:
    """Every command there is, by its words."""
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        inside = getattr(command, "commands", None)
        found += commands(command, *names, name) if inside else [(*names, name)]
    return found


EVERY = commands(typer.main.get_command(app))


def test_every_command_is_documented_with_its_exit_status() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for command in EVERY:
        if command[0] == "dlq":
            continue
        section = page.partition(f"### redrive {' '.join(command)}\n")[2].partition("\n### ")[0]
        assert section, f"docs/reference/cli.md has no section for redrive {' '.join(command)}"
        status, printed = call(*command, "--help")
        said = " ".join(printed.split())
        assert (status, "Exit status: 0, " in said) == (0, True), command
        statuses = {word.rstrip(",") for word in said.partition("Exit status:")[2].split() if word.rstrip(",").isdigit()}
        for number in statuses & {"0", "1", "2", "3", "4", "130"}:
            assert f"| {number} |" in section, f"{command}: {number} is not in the table of its exit statuses"
        for option in ("--json", "--because", "--yes", "--max", "--anchor", "--force", "--quiet"):
            assert (option in section) == (option in said.partition("Options:")[2]), f"{command}: {option}"
