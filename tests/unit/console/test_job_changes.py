"""Cancel, run now, reschedule and reprioritise jobs: pages and REST API."""

from __future__ import annotations

import re

import pytest

from redrive import App
from redrive.ledger import NewJob
from redrive.worker.steps import JobSteps

from .browser import client, csrf


def hidden(page: str) -> dict[str, str]:
    """Return the hidden fields of the form that confirms a plan."""
    match = re.search(r'name="seen" value="([^"]+)"', page)
    assert match is not None
    return {"csrf": csrf(page), "seen": match[1]}


def submit(app: App, count: int, **fields: float) -> list[int]:
    jobs = [NewJob("mail.send", f"m{number}", b"{}", **fields) for number in range(count)]  # type: ignore[arg-type]
    return [each.id for each in app.ledger.submit_many(jobs)]


def state(app: App, job_id: int) -> str:
    job = app.ledger.get(job_id)
    assert job is not None
    return job.shown


@pytest.mark.req("Q-2")
def test_the_page_of_a_job_cancels_it_with_a_reason(app: App) -> None:
    (job_id,) = submit(app, 1)
    browser = client(app)
    page = browser.get(f"/jobs/{job_id}").text
    assert f"/jobs/plan?act=cancel&amp;ids={job_id}" in page
    plan = browser.get("/jobs/plan", params={"act": "cancel", "ids": job_id}).text
    assert "Cancel: 1 job?" in plan
    form = hidden(plan) | {"act": "cancel", "ids": str(job_id)}
    refused = browser.post("/jobs/apply", data=form)
    assert refused.status_code == 422
    assert state(app, job_id) == "queued"
    done = browser.post("/jobs/apply", data=form | {"because": "INC-42"})
    assert done.status_code == 303
    assert state(app, job_id) == "cancelled"
    sweep = browser.get(done.headers["location"]).text
    assert "1 of 1 cancelled" in sweep
    assert "Dead letter</th>" not in sweep
    again = browser.get("/jobs/plan", params={"act": "cancel", "ids": job_id}).text
    assert "is skipped: cancelled already" in again
    page = browser.get(f"/jobs/{job_id}").text
    assert "Cancel …" not in page
    assert "<dt>Cancelled by</dt>" in page
    assert "INC-42</dd>" in page


@pytest.mark.req("Q-2")
def test_many_jobs_are_cancelled_only_with_the_typed_number(app: App) -> None:
    ids = submit(app, 3)
    browser = client(app)
    assert "Cancel all matching" in browser.get("/jobs", params={"kind": "mail.send", "state": "queued"}).text
    plan = browser.get("/jobs/plan", params={"act": "cancel", "kind": "mail.send"}).text
    form = hidden(plan) | {"act": "cancel", "kind": "mail.send", "because": "INC-42"}
    assert browser.post("/jobs/apply", data=form).status_code == 422
    assert browser.post("/jobs/apply", data=form | {"typed": "3", "seen": "other"}).status_code == 409
    assert state(app, ids[0]) == "queued"
    assert browser.post("/jobs/apply", data=form | {"typed": "3"}).status_code == 303
    assert state(app, ids[0]) == "cancelled"


@pytest.mark.req("Q-3")
def test_pages_reschedule_reprioritise_and_run_now(app: App) -> None:
    (job_id,) = submit(app, 1, delay=86_400)
    browser = client(app)
    form: dict[str, str] = {}
    values = {"reschedule": {"due": "2999-01-31T12:30"}, "prioritise": {"priority": "-2"}}
    for act, value in values.items():
        plan = browser.get("/jobs/plan", params={"act": act, "ids": job_id}).text
        form = hidden(plan) | {"act": act, "ids": str(job_id), "because": "INC-42"}
        done = browser.post("/jobs/apply", data=form | value)
        assert done.status_code == 303, done.text
    job = app.ledger.get(job_id)
    assert job is not None
    assert (job.due_at.isoformat(), job.priority) == ("2999-01-31T12:30:00+00:00", -2)
    invalid = browser.post("/jobs/apply", data=form | {"priority": "9"})
    assert invalid.status_code == 422
    unknown = browser.get("/jobs/plan", params={"act": "explode", "ids": job_id})
    assert unknown.status_code == 422


@pytest.mark.req("Q-3")
def test_a_bad_time_shows_the_form_again_with_its_values(app: App) -> None:
    (job_id,) = submit(app, 1, delay=86_400)
    browser = client(app)
    plan = browser.get("/jobs/plan", params={"act": "reschedule", "ids": job_id}).text
    assert f"redrive jobs reschedule {job_id} --at &#34;...&#34;" in plan
    form = hidden(plan) | {"act": "reschedule", "ids": str(job_id), "because": "INC-42"}
    for due in ("tomorrow", "", "2020-01-31T12:30"):
        refused = browser.post("/jobs/apply", data=form | {"due": due})
        assert refused.status_code == 422
        assert "othing was changed" in refused.text
        assert f'name="due" value="{due}"' in refused.text
        assert 'value="INC-42"' in refused.text
    refused = browser.get("/jobs/plan", params={"act": "reschedule", "ids": job_id, "due": "x"})
    assert refused.status_code == 422
    assert "--at &#34;...&#34;" in refused.text
    plan = browser.get("/jobs/plan", params={"act": "reschedule", "ids": job_id, "due": "2h"}).text
    assert "--at 2h" in plan


@pytest.mark.req("Q-2", "Q-8")
def test_the_list_filters_by_every_state_and_has_its_buttons_above(app: App) -> None:
    a, b = submit(app, 2, delay=86_400)
    browser = client(app)
    plan = browser.get("/jobs/plan", params={"act": "cancel", "ids": a}).text
    browser.post("/jobs/apply", data=hidden(plan) | {"act": "cancel", "ids": str(a), "because": "INC-42"})
    cancelled = browser.get("/jobs", params={"state": "cancelled"}).text
    assert '<option value="cancelled" selected>cancelled</option>' in cancelled
    assert f'href="/jobs/{a}"' in cancelled
    assert f'href="/jobs/{b}"' not in cancelled
    assert "No matching jobs." in browser.get("/jobs", params={"state": "waiting"}).text
    queued = browser.get("/jobs", params={"state": "queued"}).text
    assert queued.index("Cancel all matching") < queued.index("<th>Job type</th>")


@pytest.mark.req("Q-10")
def test_the_page_of_a_job_shows_its_progress_and_its_checkpoint(app: App) -> None:
    (job_id,) = submit(app, 1)
    (lease,) = app.ledger.claim({"mail.send": 1}, worker="w")
    job, browser = JobSteps(app.ledger, lease, app.ledger.now).reports, client(app)
    assert "Checkpoint" not in browser.get(f"/jobs/{job_id}").text
    job.progress(0.4, "page 12 of 30")
    job.checkpoint({"page": 12, "password": "hunter2"})
    page = browser.get(f"/jobs/{job_id}").text
    assert "40 %, page 12 of 30" in page
    assert "<h2>Checkpoint</h2>" in page
    assert "&#34;page&#34;: 12" in page
    assert "hunter2" not in page


@pytest.mark.req("Q-3")
def test_a_job_that_waits_for_a_signal_has_no_run_now(app: App) -> None:
    (job_id,) = submit(app, 1)
    browser = client(app)
    assert "Run now …" in browser.get(f"/jobs/{job_id}").text
    (lease,) = app.ledger.claim({"mail.send": 1}, worker="w")
    app.ledger.settle([lease.suspended(600, waits_for="approved")])
    page = browser.get(f"/jobs/{job_id}").text
    assert "Run now …" not in page
    assert "Reschedule …" in page


@pytest.mark.req("Q-2", "Q-3")
def test_the_api_changes_jobs(app: App) -> None:
    a, b, c = submit(app, 3, delay=86_400)
    browser = client(app)
    browser.headers["x-csrf-token"] = csrf(browser.get("/jobs").text)

    def post(path: str, **body: object) -> tuple[int, dict[str, object]]:
        response = browser.post(f"/api/jobs/{path}", json=body)
        return response.status_code, response.json()

    plan = browser.get("/api/jobs/plan", params={"act": "cancel", "kind": "mail.send"}).json()
    assert (plan["count"], plan["kinds"]) == (3, {"mail.send": 3})
    status, sweep = post("run-now", ids=[a], because="hurry")
    assert (status, sweep["state"], sweep["made"]) == (200, "done", 1)
    assert post("reschedule", ids=[b], due="2999-01-31T12:30:00Z", because="later")[0] == 200
    status, problem = post("reschedule", ids=[b], due="2020-01-31T12:30:00Z", because="later")
    assert (status, "2020-01-31 12:30:00 UTC has passed; use a time to come" in str(problem)) == (422, True)
    assert post("prioritise", ids=[c], priority=-1, because="first")[0] == 200
    assert post("prioritise", ids=[c], priority=5, because="first")[0] == 422
    assert post("cancel", kind="mail.send", because="INC-42")[0] == 422, "max is missing"
    assert post("cancel", kind="mail.send", max=2, because="INC-42")[0] == 409
    assert post("cancel", because="INC-42", max=9)[0] == 409, "all jobs"
    status, sweep = post("cancel", kind="mail.send", max=3, because="INC-42")
    assert (status, sweep["made"]) == (200, 3)
    assert {state(app, each) for each in (a, b, c)} == {"cancelled"}
    status, problem = post("cancel", ids=[a, 999], because="again")
    assert status == 409
    assert f"job {a}: cancelled already; job 999: not found; nothing was changed" in str(problem)
    (d,) = submit(app, 1)
    status, sweep = post("cancel", ids=[a, d], because="again")
    assert (status, sweep["made"], sweep["unchanged"]) == (200, 1, {str(a): "cancelled already"})
