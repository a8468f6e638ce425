"""`redrive jobs cancel`, `run-now`, `reschedule` and `prioritise`."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import update

from redrive.ledger import Ledger, NewJob
from redrive.ledger.db.tables import job
from tests.unit.cli.command import call

BECAUSE = ("--because", "INC-42")


@pytest.fixture
def jobs(ledger: Ledger) -> list[int]:
    """Three queued jobs, one of them scheduled for tomorrow."""
    new = [NewJob("crm.sync", "a"), NewJob("crm.sync", "b"), NewJob("mail", "c", delay=86_400)]
    return [each.id for each in ledger.submit_many(new)]


@pytest.mark.req("Q-2")
def test_jobs_are_cancelled_by_id(jobs: list[int]) -> None:
    assert call("jobs", "cancel", "1", "2", *BECAUSE) == (
        0,
        "To cancel: 2 jobs (crm.sync ×2; queued ×2)\nJob 1 cancelled\nJob 2 cancelled\n",
    )
    status, printed = call("jobs", "cancel", "1", "99", *BECAUSE)
    assert (status, printed) == (1, "Skipped 1: cancelled already\nSkipped 99: not found\n")


@pytest.mark.req("Q-2")
def test_jobs_are_cancelled_by_filter_with_confirmation(jobs: list[int]) -> None:
    status, printed = call("jobs", "cancel", "--kind", "crm.sync", *BECAUSE)
    assert status == 2
    assert "pass --yes --max 2 to cancel 2. Nothing was changed" in printed
    status, printed = call("jobs", "cancel", "--kind", "crm.sync", "--yes", "--max", "1", *BECAUSE)
    assert (status, "2 match; nothing was changed" in printed) == (1, True)
    status, printed = call("jobs", "cancel", "--kind", "crm.sync", "--dry-run", *BECAUSE)
    assert status == 0
    assert call("jobs", "cancel", "--kind", "crm.sync", "--yes", "--max", "2", *BECAUSE)[0] == 0
    status, printed = call("jobs", "list", "--state", "cancelled", "--json")
    assert {each["key"] for each in json.loads(printed)} == {"a", "b"}


@pytest.mark.req("Q-2")
def test_a_cancel_without_selection_or_reason_is_rejected(jobs: list[int]) -> None:
    status, printed = call("jobs", "cancel", *BECAUSE)
    assert status == 2
    assert "pass IDs of jobs, or --kind" in printed
    assert call("jobs", "cancel", "1")[0] == 2
    assert call("jobs", "cancel", "1", "--because", " ")[0] == 2


@pytest.mark.req("Q-2")
def test_a_cancel_of_no_jobs_does_not_speak_of_due_jobs(jobs: list[int]) -> None:
    status, printed = call("jobs", "cancel", "--search", "user:nobody", *BECAUSE)
    assert (status, printed) == (1, "No matching jobs to change. Ended jobs, and jobs as requested, are left out.\n")


@pytest.mark.req("Q-2")
def test_an_unknown_job_type_is_named(jobs: list[int]) -> None:
    status, printed = call("jobs", "cancel", "--kind", "crm.sink", *BECAUSE)
    assert status == 1
    assert "crm.sync" in printed


@pytest.mark.req("Q-3")
def test_jobs_run_now_and_are_rescheduled(jobs: list[int], ledger: Ledger) -> None:
    status, printed = call("jobs", "run-now", "3", *BECAUSE)
    assert (status, printed) == (0, "To run now: 1 job (mail ×1; queued ×1)\nJob 3 due now\n")
    status, printed = call("jobs", "run-now", "3", *BECAUSE)
    assert (status, printed) == (1, "Skipped 3: due already\n")
    status, printed = call("jobs", "reschedule", "3", "--in", "2h", *BECAUSE)
    assert (status, printed.splitlines()[-1].startswith("Job 3 rescheduled to ")) == (0, True)
    status, printed = call("jobs", "reschedule", "3", "--at", "2999-01-31T12:30", *BECAUSE)
    assert printed.splitlines()[-1] == "Job 3 rescheduled to 2999-01-31 12:30:00 UTC"
    stored = ledger.get(3)
    assert stored is not None
    assert stored.due_at.isoformat() == "2999-01-31T12:30:00+00:00"
    status, printed = call("jobs", "reschedule", "3", "--at", "soon", *BECAUSE)
    assert (status, "invalid time 'soon'" in printed) == (2, True)


@pytest.mark.req("Q-3")
def test_jobs_are_reprioritised(jobs: list[int]) -> None:
    status, printed = call("jobs", "prioritise", "1", "--priority", "-2", *BECAUSE)
    assert (status, printed.splitlines()[-1]) == (0, "Job 1 priority -2")
    assert call("jobs", "prioritise", "1", "--priority", "3", *BECAUSE)[0] == 2


@pytest.mark.req("Q-2")
def test_json_has_the_plan_and_the_outcome(jobs: list[int]) -> None:
    status, printed = call("jobs", "cancel", "1", "--json", *BECAUSE)
    outcome = json.loads(printed)
    assert (status, outcome["done"], outcome["skipped"]) == (0, {"1": 1}, {})
    assert outcome["plan"]["act"] == "cancel"
    status, printed = call("sweeps", "show", str(outcome["sweep"]["id"]), width=120)
    assert status == 0
    assert "1 of 1 cancelled" in printed


@pytest.mark.req("Q-3")
def test_a_dead_letter_is_replayed_instead(jobs: list[int], ledger: Ledger) -> None:
    ledger.settle(ledger.claim({"crm.sync": 1}, worker="w")[0].dead("attempts", error="boom"))
    status, printed = call("jobs", "run-now", "1", *BECAUSE)
    assert (status, "replay it instead with `redrive dead replay`" in printed) == (1, True)
    status, printed = call("jobs", "cancel", "1", *BECAUSE)
    assert (status, "discard it instead with `redrive dead discard`" in printed) == (1, True)


@pytest.mark.req("Q-3")
def test_an_invalid_or_past_time_is_rejected(jobs: list[int]) -> None:
    status, printed = call("jobs", "reschedule", "3", "--in", "tomorrow", *BECAUSE)
    assert (status, "--at / --in" in printed) == (2, True)
    status, printed = call("jobs", "reschedule", "3", "--at", "2020-01-01", *BECAUSE)
    assert (status, "2020-01-01 00:00:00 UTC has passed" in " ".join(printed.split())) == (2, True)


@pytest.mark.req("Q-2")
def test_a_limit_below_the_matches_is_explained(jobs: list[int]) -> None:
    selection = ("jobs", "cancel", "--kind", "crm.sync", "--limit", "1", *BECAUSE)
    for confirmed in ((), ("--yes", "--max", "1")):
        status, printed = call(*selection, *confirmed, width=400)
        assert status in (1, 2)
        assert "without a prompt the plan must include all matches; narrow the selection" in printed, confirmed


@pytest.mark.req("Q-2")
def test_a_cancelled_job_shows_actor_and_reason(jobs: list[int], ledger: Ledger) -> None:
    call("jobs", "cancel", "1", *BECAUSE)
    ledger.control.cancel([2], actor="ann", because="wrong order")
    status, printed = call("jobs", "show", "1", width=120)
    assert status == 0
    assert any("cancelled" in line and ": INC-42" in line for line in printed.splitlines())
    printed = call("jobs", "show", "2", width=120)[1]
    assert "by ann" in printed
    assert ": wrong order" in printed
    assert "INC-42" not in printed
    entry = json.loads(call("jobs", "show", "2", "--json")[1])["cancelled_by"]
    assert (entry["actor"], entry["because"]) == ("ann", "wrong order")


@pytest.mark.req("Q-1")
def test_a_job_shows_its_priority_and_tags(ledger: Ledger) -> None:
    ledger.submit(NewJob("mail", "m", priority=1, tags={"order_id": "o-99"}))
    lines = [line.split() for line in call("jobs", "show", "1")[1].splitlines()]
    assert ["priority", "1"] in lines
    assert ["tags", "order_id:", "o-99"] in lines


@pytest.mark.req("Q-2")
def test_jobs_are_selected_by_a_search(ledger: Ledger) -> None:
    new = [NewJob("mail", f"m{number}", tags={"order_id": f"o-{number}"}) for number in range(3)]
    ledger.submit_many(new)
    search = ("--search", "order_id:o-1", "--yes", "--max", "1", *BECAUSE)
    status, printed = call("jobs", "cancel", *search)
    assert (status, printed.splitlines()[-1]) == (0, "Job 2 cancelled")
    status, printed = call("jobs", "cancel", "--kind", "mail", "--search", "type:mail", *BECAUSE)
    assert (status, "specified twice" in printed) == (2, True)


@pytest.mark.req("Q-3")
def test_run_now_reports_that_the_job_type_is_paused(jobs: list[int]) -> None:
    call("pause", "job-type", "mail", *BECAUSE)
    status, printed = call("jobs", "run-now", "3", *BECAUSE, width=200)
    assert status == 0
    assert "Job type mail is paused by" in printed


@pytest.mark.req("Q-2")
def test_the_list_counts_cancelled_jobs(jobs: list[int]) -> None:
    call("jobs", "cancel", "1", "2", "3", *BECAUSE)
    printed = call("jobs", "list", "--state", "cancelled", "--limit", "2")[1]
    assert "Showing 2 of 3; use --limit for more." in printed
    assert "+ 3 cancelled." in call("jobs", "list", "--state", "dead", width=200)[1]


@pytest.mark.req("Q-8")
def test_a_signal_that_the_job_does_not_wait_for_is_named(jobs: list[int], ledger: Ledger) -> None:
    with ledger.connections.write.use() as session, session.transaction("test"):
        session.core.execute(update(job).where(job.c.id == 3).values(waits_for="approved"))
    status, printed = call("jobs", "signal", "3", "aproved", *BECAUSE)
    assert status == 0
    assert "It waits for another signal: 'approved'." in printed
