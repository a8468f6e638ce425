"""Suggested commands run as printed, on the same ledger."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.cli.suggestions import complete_command, expand_commands, remember_ledger
from tests.conformance.partitions.world import DAY, World
from tests.unit.cli.command import call
from tests.unit.cli.lake import BAD

PRINTED = re.compile(r"`(redrive [^`]+)`|(?:→ +|try +|^ +)(redrive .+)$", re.MULTILINE)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    remember_ledger(None)


def test_a_suggestion_has_no_ledger_unless_one_was_passed() -> None:
    remember_ledger(None)
    assert complete_command("redrive state failures") == "redrive state failures"


@pytest.mark.parametrize(
    ("ledger", "command", "typed"),
    [
        ("lake:app", "redrive state failures", "redrive state failures --ledger lake:app"),
        ("sqlite:///my lake.db", "redrive doctor", "redrive doctor --ledger 'sqlite:///my lake.db'"),
        ("lake:app", "redrive work module:app", "redrive work lake:app"),
        ("sqlite:///x.db", "redrive work module:app", "start a worker of the app that has these jobs"),
        ("lake:app", "redrive storage check", "redrive storage check --config lake:app"),
        ("sqlite:///x.db", "redrive storage check", "redrive storage check"),
        ("lake:app", "redrive serve --hash token", "redrive serve --hash token"),
        ("lake:app", "mend what the jobs call", "mend what the jobs call"),
        ("lake:app", "", ""),
    ],
)
def test_a_suggestion_repeats_the_ledger(ledger: str, command: str, typed: str) -> None:
    remember_ledger(ledger)
    assert complete_command(command) == typed


def test_no_password_is_printed() -> None:
    remember_ledger("postgresql://ann:hunter2@db.example.com/lake")
    assert complete_command("redrive doctor") == "redrive doctor --ledger postgresql://ann@db.example.com/lake"
    remember_ledger("postgresql://db.example.com/lake?user=ann&password=hunter2&connect_timeout=3")
    assert (
        complete_command("redrive doctor")
        == "redrive doctor --ledger 'postgresql://db.example.com/lake?user=ann&connect_timeout=3'"
    )


def test_a_worker_hint_names_the_configured_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REDRIVE_APP", "REDRIVE_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    remember_ledger(None)
    assert complete_command("redrive work module:app") == "start a worker of the app that has these jobs"
    assert expand_commands("run `redrive work module:app`") == "run `redrive work module:app`"
    Path("redrive.toml").write_text('app = "shop:app"\n', encoding="utf-8")
    assert complete_command("redrive work module:app") == "redrive work shop:app"
    monkeypatch.setenv("REDRIVE_LEDGER", "lake:app")
    assert complete_command("redrive work module:app") == "redrive work lake:app"


def test_commands_between_backticks_are_completed() -> None:
    remember_ledger("lake:app")
    said = "`redrive state failures`, or `--all`; `redrive doctor`"
    assert expand_commands(said) == "`redrive state failures --ledger lake:app`, or `--all`; `redrive doctor --ledger lake:app`"


COMMANDS = [
    ("state", "inspect"),
    ("state", "inspect", "crm/orders"),
    ("state", "failures"),
    ("state", "explain", BAD),
    ("state", "explain", f"crm/nobody/orders/{DAY}"),
    ("state", "history", f"crm/nobody/orders/{DAY}"),
    ("state", "retry", BAD, "--plan"),
    ("state", "retry", BAD, "--because", "x"),
    ("backfill", "plan", "crm/orders", "--since", "2025-01-01", "--until", "2025-01-02", "--customer-id", "c0"),
    ("backfill", "status", "3"),
    ("backfill", "status", "99"),
    ("doctor",),
    ("overview",),
]


@pytest.mark.req("O-1")
def test_every_printed_command_has_the_ledger(lake: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDRIVE_LEDGER")
    lake.control.pause_source("crm", actor="jane", because="moves house")
    ledger = lake.ledger.url
    seen = 0
    for arguments in COMMANDS:
        printed = call(*arguments, "--ledger", ledger, width=1000)[1]
        for found in PRINTED.finditer(printed):
            line = shlex.split(found[1] or found[2])
            if line[1] != "work":
                assert line[-2:] == ["--ledger", ledger], (arguments, line)
                seen += 1
    assert seen >= len(COMMANDS)


@pytest.mark.req("O-1")
def test_a_hint_works_when_it_is_typed(lake: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDRIVE_LEDGER")
    file = tmp_path / "a plan.json"
    printed = call("state", "retry", BAD, "--out", str(file), "--ledger", lake.ledger.url, width=1000)[1]
    (line,) = re.findall(r"→ (redrive .*)", printed)
    status, printed = call(*shlex.split(line)[1:])
    assert (status, "1 partition queued" in printed) == (0, True)
