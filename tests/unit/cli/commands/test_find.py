"""`redrive find`: jobs and dead letters by words."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from redrive.cli.root import app
from redrive.ledger import Ledger, NewJob
from tests.unit.cli.command import columns
from tests.unit.cli.conftest import SECRET

pytestmark = pytest.mark.usefixtures("busy")


def run(*arguments: str, width: int = 100) -> Result:
    with columns(width):
        return CliRunner().invoke(app, list(arguments))


@pytest.mark.req("Q-1")
def test_output_fits_the_terminal_and_has_no_secrets() -> None:
    for width in (60, 80, 120):
        done = run("find", "state:dead", width=width)
        assert done.exit_code == 0, done.output
        assert SECRET not in done.output
        assert max(map(len, done.output.splitlines())) <= width, width


@pytest.mark.req("Q-1")
def test_jobs_and_dead_letters_are_found(busy: Ledger) -> None:
    busy.submit(NewJob("mail.send", "shop:zoe:o-99:mail:v1", tags={"order_id": "o-99"}))
    for words in (("order_id:o-99",), ("user:zoe", "type:mail.send"), ("key:shop:zoe*",), ("o-99",)):
        result = json.loads(run("find", *words, "--json").output)
        assert [job["key"] for job in result["jobs"]] == ["shop:zoe:o-99:mail:v1"], words
    result = json.loads(run("find", "state:dead", "--json", "--limit", "3").output)
    assert (len(result["jobs"]), len(result["letters"]), result["is_cut"]) == (3, 3, True)
    assert "There may be more." in run("find", "state:dead", "--limit", "3").output


@pytest.mark.req("Q-1")
def test_no_match_and_an_invalid_word_have_their_exit_codes() -> None:
    nothing = run("find", "no such thing")
    assert (nothing.exit_code, nothing.output.strip()) == (1, "Nothing matches.")
    wrong = run("find", "colour:red")
    assert wrong.exit_code == 2
    assert "unknown word 'colour'" in wrong.output


@pytest.mark.req("Q-1")
def test_dead_letters_are_listed_by_a_search() -> None:
    found = json.loads(run("dead", "list", "--search", "state:dead id:4", "--json").output)
    assert [letter["job_id"] for letter in found] == [4]
    assert "twice" in run("dead", "list", "--search", "type:a", "--kind", "b").output


@pytest.mark.req("Q-1")
def test_an_argument_may_have_several_words(busy: Ledger) -> None:
    busy.submit(NewJob("mail.send", "shop:zoe:o-99:mail:v1", tags={"order_id": "o-99"}))
    for words in ("user:zoe state:queued", "type:mail.send order_id:o-99"):
        result = json.loads(run("find", words, "--json").output)
        assert [job["key"] for job in result["jobs"]] == ["shop:zoe:o-99:mail:v1"], words
    assert run("find", "error:no such text").exit_code == 1


@pytest.mark.req("Q-1")
def test_states_are_found_by_their_printed_names() -> None:
    for word in ("retry scheduled", "Retry-Scheduled", "retry_wait"):
        assert run("find", f"state:{word}").exit_code in (0, 1), word
