"""Shared options: states by printed words and stored names, and Ctrl+C."""

from __future__ import annotations

import json

import pytest
import typer

from redrive.cli.commands.partitions.calendar import SIGNS
from redrive.cli.options import (
    DEAD_LETTER_STATES,
    JOB_STATES,
    KEY_STATES,
    PARTITION_STATES,
    ReadOptions,
    WriteOptions,
    open_operator,
    state_parser,
)
from redrive.cli.render.details import state_name
from redrive.console.render.fragments import state_name as console_name
from redrive.ops.partitions.selection import STANDINGS
from tests.conformance.partitions.world import DAY
from tests.unit.cli.command import call


@pytest.mark.parametrize("states", [PARTITION_STATES, JOB_STATES, DEAD_LETTER_STATES, KEY_STATES])
def test_every_word_of_cli_and_console_is_accepted(states: dict[str, str]) -> None:
    parse = state_parser(states)
    for printed, stored in states.items():
        assert {parse(each) for each in (printed, stored, console_name(stored), state_name(stored), printed.upper())} == {stored}


def test_partition_states_are_the_words_of_the_tables() -> None:
    assert {SIGNS[stored].label for stored in PARTITION_STATES.values()} == set(PARTITION_STATES)
    assert set(PARTITION_STATES.values()) == set(STANDINGS)
    parse = state_parser(PARTITION_STATES)
    assert {parse(each) for each in ("gave up", "given up", "gave-up", "GIVEN_UP", "terminal")} == {"terminal"}


def test_an_unknown_state_is_rejected_with_the_valid_words() -> None:
    with pytest.raises(typer.BadParameter, match="unknown state 'odd'; use pending, accepted, 'newer run rejected', failed or"):
        state_parser(PARTITION_STATES)("odd")


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("printed", "stored", "count"),
    [
        ("accepted", "success", 4),
        ("newer run rejected", "refresh_failed", 1),
        ("given up", "terminal", 1),
        ("failed", "failed", 4),
    ],
)
def test_partitions_are_selected_by_printed_words(printed: str, stored: str, count: int) -> None:
    asked = ("state", "inspect", "crm/orders", "--until", str(DAY), "--json", "--status")
    by_word = call(*asked, printed)
    assert by_word == call(*asked, stored)
    assert (by_word[0], len(json.loads(by_word[1]))) == (0, count)


@pytest.mark.usefixtures("busy")
def test_jobs_are_selected_by_the_words_of_the_console() -> None:
    assert call("jobs", "list", "--state", "retry scheduled") == call("jobs", "list", "--state", "retry_wait")


@pytest.mark.parametrize("states", [PARTITION_STATES, JOB_STATES, DEAD_LETTER_STATES, KEY_STATES])
def test_cli_and_console_have_one_word_for_a_state(states: dict[str, str]) -> None:
    assert {stored: printed for printed, stored in states.items()} == {stored: console_name(stored) for stored in states.values()}
    assert console_name("giveup") == "given up"


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ReadOptions(), "redrive: interrupted\n"),
        (WriteOptions(), "redrive: interrupted; completed steps stay, and are in the audit log\n"),
    ],
)
def test_ctrl_c_mentions_completed_steps_only_in_a_command_that_changes_something(
    options: ReadOptions | WriteOptions, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, open_operator(options):
        raise KeyboardInterrupt
    assert (ended.value.exit_code, capsys.readouterr().err) == (130, message)
