"""Every command that a message, the console or the docs print runs as printed."""

from __future__ import annotations

import pytest

from redrive.ledger import Ledger
from tests.unit.cli import typed
from tests.unit.cli.command import call

SOURCE = sorted({*typed.in_source(), *typed.in_templates()})
PAGES = sorted(typed.in_pages())
ENDLESS = ("work", "serve", "demo", "watch")


def test_commands_in_messages_and_findings_parse() -> None:
    assert len(SOURCE) > 40
    wrong = [f"{place}: `{command}`: {why}" for place, command in SOURCE if (why := typed.problem(command))]
    assert not wrong, "\n".join(wrong)


def test_commands_in_blocks_of_the_docs_parse() -> None:
    commands = [printed for printed, is_typed in PAGES if is_typed]
    assert len(commands) > 40
    wrong = [f"{place}: `{command}`: {why}" for place, command in commands if (why := typed.problem(command))]
    assert not wrong, "\n".join(wrong)


def test_commands_that_the_docs_mention_exist() -> None:
    mentions = [printed for printed, is_typed in PAGES if not is_typed]
    wrong = [f"{place}: `{command}`: {why}" for place, command in mentions if (why := typed.unknown(command))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("redrive dead replay 1", "Missing parameter: because"),
        ("redrive dead replay --because x --kinds a", "No such option: --kinds"),
        ("redrive ded list", "No such command 'ded'"),
        ("redrive jobs show first", "must be a whole number"),
    ],
)
def test_a_command_that_cannot_be_typed_is_found(command: str, why: str) -> None:
    assert why in (typed.problem(command) or "")


SHOWN = [
    "overview",
    "doctor",
    "activity",
    "failures",
    "failures HTTPStatusError --kind crm.sync",
    "journal tail",
    "jobs list",
    "jobs list --state dead",
    "jobs show 1",
    "jobs show 3",
    "jobs show 6",
    "jobs show 8",
    "jobs show 10",
    "jobs show 999",
    "dead list",
    "dead list --status all",
    "dead show 1",
    "dead show 4",
    "dead show 999",
    "sweeps list",
    "sweeps show 1",
    "sweeps show 9",
    "events list",
    "events show e-1",
    "batch status",
    "batch giveups",
    "workers list",
    "schedules list",
    "keys list",
    "keys list --abandoned",
    "keys show a:b:c:d:v1",
    "audit list",
    "audit verify",
    "ledger status",
    "state inspect",
    "state failures",
    "state explain crm/acme/orders/2026-01-01",
    "state history crm/acme/orders/2026-01-01",
    "backfill list",
    "backfill status 9",
    "dead replay 4 --because x --dry-run",
    "dead replay 5 --because x --detach",
]


def test_commands_that_are_printed_run_on_the_same_ledger(busy: Ledger) -> None:
    busy.maintenance.heartbeat("web-7f9c:1201", {"app": "shop"})
    printed: dict[str, str] = {}
    for line in SHOWN:
        for _, command in typed.in_text(line, call(*line.split(), width=400)[1]):
            printed.setdefault(command, line)
    assert len(printed) > 12
    wrong = []
    for command, line in printed.items():
        words = typed.words_of(command)[1:]
        if words[0] in ENDLESS:
            continue
        status, said = call(*words)
        asks = (
            "confirmation: no interactive shell" in said or "unknown source 'crm'" in said
        )  # as typed at a terminal, and with a dataset
        if (status in (2, 70) and not asks) or "Usage:" in said:
            wrong.append(f"redrive {line} prints `{command}`, which ends with {status}: {said}")
    assert not wrong, "\n".join(wrong)
