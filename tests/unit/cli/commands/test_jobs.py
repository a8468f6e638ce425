"""`redrive jobs`: states, widths, no secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from redrive.cli.root import app
from redrive.ledger import Ledger, NewJob
from tests.unit.cli.command import call, columns
from tests.unit.cli.conftest import LONG, SECRET

pytestmark = pytest.mark.usefixtures("busy")


def run(*arguments: str, width: int = 100) -> Result:
    with columns(width):
        return CliRunner().invoke(app, ["jobs", *arguments])


@pytest.mark.parametrize("arguments", [("list",), ("list", "--state", "dlq"), ("show", "1"), ("show", "8"), ("show", "11")])
def test_output_fits_the_terminal_and_has_no_secrets(arguments: tuple[str, ...]) -> None:
    for width in (60, 80, 120):
        done = run(*arguments, width=width)
        assert done.exit_code == 0, done.output
        assert SECRET not in done.output
        assert max(map(len, done.output.splitlines())) <= width, width


@pytest.mark.req("W-2")
@pytest.mark.parametrize(
    ("state", "ids"),
    [
        ("queued", {10, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30}),
        ("running", {9, 19}),
        ("retry_wait", {8, 18}),
        ("done", {7, 17}),
        ("blocked", {6, 16}),
        ("dlq", {4, 5, 11, 12, 13, 14, 15}),
        ("replaying", {31, 32}),
        ("discarded", {3}),
    ],
)
def test_jobs_are_listed_by_state(busy: Ledger, state: str, ids: set[int]) -> None:
    done = run("list", "--state", state, "--json")
    found = json.loads(done.output)
    assert {one["id"] for one in found} == ids
    assert {one["state"] for one in found} == {state}
    assert [busy.get(one["id"]).shown for one in found] == [state] * len(ids)  # type: ignore[union-attr]


def test_jobs_are_listed_newest_first_and_filtered() -> None:
    found = json.loads(run("list", "--json", "--limit", "1000").output)
    assert [one["id"] for one in found] == sorted((one["id"] for one in found), reverse=True)
    assert len(found) == 30, "what a replay took the place of is shown with its replay"
    assert {one["kind"] for one in json.loads(run("list", "--kind", LONG, "--json").output)} == {LONG}
    assert "Showing the first 2; use --limit for more." in run("list", "--limit", "2").output
    assert "Showing 2 of 12; use --limit for more." in run("list", "--state", "queued", "--limit", "2").output
    assert "No job matches. 32 submitted" in run("list", "--state", "running", "--kind", "receipts.send").output


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (1, "replaced by a replay, job 31"),
        (3, "discarded"),
        (4, 'dead: attempts; replay it with `redrive dead replay 4 --because "..."`'),
        (6, 'blocked: the customer\'s credentials have expired; replay it with `redrive dead replay 6 --because "..."`'),
        (7, "done"),
        (8, "queued for its next attempt"),
        (9, "attempt 1 is running on web-7f9c:1201"),
        (10, "queued for its first attempt, due now"),
        (31, "queued for its first attempt, due now"),
    ],
)
def test_a_job_shows_its_next_step(job: int, says: str) -> None:
    assert json.loads(run("show", str(job), "--json").output)["says"] == says


def test_a_job_is_shown_with_payload_and_attempts() -> None:
    printed = run("show", "8").output
    for part in ("state      retry scheduled", "slow down", "Correlation ids", "request_id  r-1", '"order": "o-1"', "1  failed"):
        assert part in printed
    assert run("show", "7").output.count("done") == 1
    none = run("show", "999")
    assert none.exit_code == 1
    assert "job 999: not found; `redrive jobs list` lists jobs" in none.output
    assert run("list", "--state", "lost").exit_code == 2


def test_a_raw_payload_needs_a_reason(busy: Ledger) -> None:
    assert run("show", "1", "--raw").exit_code == 2
    assert run("show", "1", "--because", "x").exit_code == 2
    done = run("show", "1", "--raw", "--because", "the customer asks", "--actor", "ann")
    assert done.exit_code == 0, done.output
    assert SECRET in done.output
    entry = busy.audit(limit=1000)[-1]
    assert (entry.actor, entry.action, entry.because, entry.what["job"]) == ("ann", "payload.reveal", "the customer asks", 1)


def test_attempts_that_do_not_count_are_marked(busy: Ledger) -> None:
    busy.submit(NewJob("mail", "shop:ann:o-1:mail:v1"))

    def settle(**options: Any) -> int:
        (lease,) = busy.claim({"mail": 1}, worker="w1")
        busy.settle(lease.again(0, **options))
        return lease.job_id

    settle(error="503", reason="parked", free=True)
    settle(error="500", reason="failed")
    settle(error="not yet", reason="again", free=True)
    job_id = settle(error="not now", reason="again")
    report = json.loads(run("show", str(job_id), "--json").output)
    assert [(each["error"], each["counted"]) for each in report["tries"]] == [
        ("503", False),
        ("500", True),
        ("not yet", False),
        ("not now", True),
    ]
    printed = run("show", str(job_id)).output
    assert printed.count("failed, not counted") == 2
    assert "  –  failed, not counted" in printed


def test_a_done_job_shows_no_error_in_the_list(busy: Ledger) -> None:
    busy.submit(NewJob("mail", "shop:ann:o-1:mail:v1"))
    busy.settle(busy.claim({"mail": 1}, worker="w1")[0].again(0, error="503 once", reason="failed"))
    assert "503 once" in run("list", "--kind", "mail").output
    busy.turn([lease.done() for lease in busy.claim({"mail": 1}, worker="w1")], {}, worker="w1")
    assert "503 once" not in run("list", "--kind", "mail").output
    (job,) = json.loads(run("list", "--kind", "mail", "--json").output)
    assert job["error"] == "503 once"


def test_replaced_jobs_are_not_counted_as_discarded(busy: Ledger) -> None:
    discarded = busy.discard([4, 5], actor="bob", because="test orders").done
    assert len(discarded) == 2
    assert "Showing 2 of 3; use --limit for more." in run("list", "--state", "discarded", "--limit", "2").output
    printed = call("ledger", "status", width=200)[1]
    assert "discarded or replayed" in printed.partition("Jobs by type")[2]


def test_the_list_uses_the_words_of_the_console() -> None:
    printed = run("list", "--state", "running").output
    assert " time " in printed.splitlines()[0]
    assert " started " in printed


@pytest.mark.req("Q-8")
def test_signal_is_sent_once_and_shown() -> None:
    sent = run("signal", "10", "approved", "--payload", '{"by": "bob"}', "--because", "INC-42")
    assert (sent.exit_code, sent.output) == (0, "Signal 'approved' sent to job 10.\n")
    again = run("signal", "10", "approved", "--because", "INC-42")
    assert again.exit_code == 1
    assert "was sent to job 10 before; nothing was changed" in " ".join(again.output.split())
    shown = run("show", "10")
    assert "signal approved" in shown.output
    assert '{"by": "bob"}' in shown.output
    unknown = run("signal", "9999", "approved", "--because", "INC-42")
    assert (unknown.exit_code, "not found; nothing was changed" in " ".join(unknown.output.split())) == (1, True)
    assert run("signal", "10", "later", "--payload", "{", "--because", "INC-42").exit_code == 2


@pytest.mark.req("Q-6")
def test_tenants_are_counted_in_a_table(busy: Ledger) -> None:
    busy.submit_many([NewJob("mail.send", f"t-{number}", tenant="ann") for number in range(2)])
    lines = run("tenants", "mail.send").output.splitlines()
    assert [line.split() for line in lines if line.strip().startswith(("tenant", "ann"))] == [
        ["tenant", "queued", "running"],
        ["ann", "2", "0"],
    ]
    assert "No queued or running job of" in run("tenants", LONG).output
    report = json.loads(run("tenants", "mail.send", "--json").output)
    assert report["tenants"] == [{"tenant": "ann", "queued": 2, "running": 0}]
