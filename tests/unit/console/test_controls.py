"""Pauses and limits on their page and by the API."""

from __future__ import annotations

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from redrive import App
from redrive.commands.registry import CommandScheduleTask
from redrive.console import asgi
from redrive.ledger.jobs import parking
from redrive.ops import Operator

from .browser import TOKEN, VIEWER_PASSWORD, client, csrf, signed_in


@pytest.mark.req("Q-4", "O-4")
def test_the_page_pauses_and_resumes(app: App) -> None:
    browser = client(app)
    page = browser.get("/controls?scope=job+type&name=crm.sync").text
    assert 'value="crm.sync"' in page
    form = {"csrf": csrf(page), "scope": "job type", "name": "crm.sync", "because": "the CRM is migrated"}
    assert browser.post("/controls/pause", data=form | {"until": "2h"}).status_code == 303
    (line,) = Operator(app, actor="ann").pauses.find()
    assert (line.name, line.because) == ("crm.sync", "the CRM is migrated")
    assert line.until is not None
    assert "paused by hand" in browser.get("/").text
    page = browser.get("/controls").text
    assert "the CRM is migrated" in page
    assert browser.post("/controls/resume", data=form).status_code == 303
    assert browser.post("/controls/resume", data=form).status_code == 409
    assert "Nothing is paused by hand." in browser.get("/controls").text


@pytest.mark.req("Q-4", "O-4")
def test_a_paused_app_has_a_banner_on_the_overview(app: App) -> None:
    browser = client(app)
    form = {"csrf": csrf(browser.get("/controls").text), "scope": "app", "name": "ignored", "because": "INC-42"}
    assert browser.post("/controls/pause", data=form).status_code == 303
    page = browser.get("/").text
    assert "The whole app is paused by" in page
    assert "until resumed: INC-42" in page


@pytest.mark.req("Q-4")
@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"name": "crm.snyc"}, 409, "did you mean crm.sync?"),
        ({"name": "crm.sync", "until": "yesterday"}, 422, "nvalid time"),
        ({"name": "crm.sync", "because": " "}, 422, "nter a reason"),
        ({"scope": "queue", "name": "x"}, 422, "unknown; use app, job type, source, schedule"),
    ],
)
def test_bad_pauses_are_shown_and_change_nothing(app: App, fields: dict[str, str], status: int, message: str) -> None:
    browser = client(app)
    form = {"csrf": csrf(browser.get("/controls").text), "scope": "job type", "because": "INC-42"} | fields
    refused = browser.post("/controls/pause", data=form)
    assert refused.status_code == status
    assert message in refused.text
    for name in ("name", "until", "because"):
        assert f'value="{form.get(name, "")}"' in refused.text, "the form keeps its values"
    assert Operator(app, actor="ann").pauses.find() == []


@pytest.mark.req("Q-5", "O-4")
def test_the_page_sets_and_resets_limits(app: App) -> None:
    app.ledger.maintenance.heartbeat("w1", {"kinds": ["crm.sync"], "limits": {"crm.sync": {"concurrency": 8}}})
    browser = client(app)
    form = {"csrf": csrf(browser.get("/controls").text), "name": "crm.sync", "because": "the CRM is slow"}
    assert browser.post("/controls/limits", data=form | {"concurrency": "2", "rate": "0.5"}).status_code == 303
    page = browser.get("/controls").text
    assert "0.5/s" in page
    assert "the CRM is slow" in page
    for values in ({"concurrency": "0"}, {"rate": "-1"}, {"rate": "many"}, {}):
        assert browser.post("/controls/limits", data=form | values).status_code == 422
    assert browser.post("/controls/limits/reset", data=form).status_code == 303
    assert browser.post("/controls/limits/reset", data=form).status_code == 409


@pytest.mark.req("Q-4")
def test_a_parked_job_type_is_resumed_on_the_page(app: App) -> None:
    with app.ledger.connections.write.use() as session:
        parking.park(session, "crm.sync", signature="x", reason="the CRM is down", seconds=60)
    browser = client(app)
    page = browser.get("/controls").text
    assert "paused (outage)" in page
    form = {"csrf": csrf(page), "name": "crm.sync", "because": "the CRM is back"}
    assert browser.post("/controls/unpark", data=form).status_code == 303
    assert "paused (outage)" not in browser.get("/controls").text


@pytest.mark.req("Q-4")
def test_a_schedule_is_fired_on_the_page(app: App) -> None:
    @app.command("nightly", cron="0 2 * * *")
    def nightly() -> None: ...

    (task,) = CommandScheduleTask.of(app.ledger, app.commands.scheduled, app.kinds())
    task.do(app.ledger.now())
    Operator(app, actor="ann").pauses.pause("schedule", "nightly", because="holidays")
    browser = client(app)
    page = browser.get("/schedules").text
    assert "paused by hand" in page
    fired = browser.post("/schedules/fire", data={"csrf": csrf(page), "name": "nightly", "because": "INC-42"})
    assert fired.status_code == 303
    assert fired.headers["location"].startswith("/jobs/")


@pytest.mark.req("Q-4", "Q-5")
def test_the_api_pauses_limits_and_fires(app: App) -> None:
    @app.command("nightly", cron="0 2 * * *")
    def nightly() -> None: ...

    headers = {"authorization": f"Bearer {TOKEN}", "redrive-actor": "bot"}
    api = TestClient(asgi(app, token=TOKEN), base_url="http://ops.example", headers=headers)
    end = (app.ledger.now() + timedelta(hours=1)).isoformat()
    body = {"scope": "job type", "name": "crm.sync", "because": "INC-42"}
    paused = api.post("/api/pauses/pause", json=body | {"until": end}).json()
    assert (paused["actor"], paused["name"], paused["because"]) == ("bot", "crm.sync", "INC-42")
    assert api.get("/api/pauses").json() == [paused]
    assert api.get("/api/overview").json()["kinds"][0]["paused"].startswith("paused by bot until ")
    assert api.post("/api/pauses/resume", json=body).status_code == 200
    assert api.post("/api/pauses/resume", json=body).status_code == 409
    assert api.post("/api/pauses/pause", json=body | {"name": "crm.snyc"}).status_code == 409
    assert api.post("/api/pauses/pause", json=body | {"until": "2020-01-01T00:00:00Z"}).status_code == 422
    assert api.post("/api/pauses/unpark", json={"name": "crm.sync", "because": "x"}).status_code == 409
    limit = api.post("/api/limits/set", json={"name": "crm.sync", "concurrency": 2, "because": "slow"}).json()
    assert (limit["concurrency"], limit["code_concurrency"]) == (2, None)
    assert api.get("/api/limits").json() == [limit]
    assert api.post("/api/limits/set", json={"name": "crm.sync", "rate": 0, "because": "slow"}).status_code == 422
    assert api.post("/api/limits/reset", json={"name": "crm.sync", "because": "slow"}).status_code == 200
    fired = api.post("/api/schedules/fire", json={"name": "nightly", "because": "INC-42"}).json()
    assert fired["job_id"] is not None


def test_viewers_see_pauses_and_cannot_change_them(app: App) -> None:
    Operator(app, actor="ann").pauses.pause("app", because="INC-42")
    browser = signed_in(app, VIEWER_PASSWORD)
    page = browser.get("/controls").text
    assert "INC-42" in page
    assert "<button>Resume" not in page
    refused = browser.post("/controls/resume", data={"csrf": csrf(page), "scope": "app", "name": "", "because": "x"})
    assert refused.status_code == 403
    assert len(Operator(app, actor="ann").pauses.find()) == 1
