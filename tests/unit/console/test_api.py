"""The REST API: reading, acting, and its description."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from redrive import App
from redrive.console import asgi
from tests.console.sample_shop import SECRET, add_problems, shop

TOKEN = "0123456789abcdef-token"
HEADERS = {"authorization": f"Bearer {TOKEN}", "redrive-actor": "bot"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with shop(f"sqlite:///{tmp_path_factory.mktemp('api') / 'ledger.db'}") as made:
        add_problems(made)
        yield made


@pytest.fixture(scope="module")
def api(app: App) -> TestClient:
    return TestClient(asgi(app, token=TOKEN), base_url="http://ops.example", headers=HEADERS)


READS = [
    "/api/status", "/api/doctor", "/api/pulse", "/api/jobs", "/api/jobs/1", "/api/dead?status=all", "/api/dead/groups",
    "/api/dead/2", "/api/dead/plan?act=replay&kind=crm.sync", "/api/sweeps", "/api/sweeps/1", "/api/events",
    "/api/events/one?id=ev-1", "/api/keys", "/api/keys/one?key=billing:ann:o-1:charge:v1", "/api/audit", "/api/audit/verify",
    "/api/layers", "/api/search?q=type:crm.sync", "/api/jobs?q=user:ann&state=dlq",
    "/api/activity", "/api/activity?since=1h&kind=crm.sync",
]  # fmt: skip


@pytest.mark.req("O-4", "J-4")
@pytest.mark.parametrize("path", READS)
def test_reads_contain_no_secrets(api: TestClient, path: str) -> None:
    answer = api.get(path)
    assert answer.status_code == 200
    assert answer.json()
    assert SECRET not in answer.text


def test_an_action_needs_a_selection_a_reason_and_a_maximum(api: TestClient, app: App) -> None:
    body: dict[str, Any] = {"kind": "crm.sync", "error": "CrmRejected", "because": "the address is there now"}
    refused = api.post("/api/dead/replay", json=body)
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert "3 match" in refused.json()["detail"]
    assert api.post("/api/dead/replay", json=body | {"max": 2}).status_code == 409
    cut = api.post("/api/dead/replay", json=body | {"max": 2, "limit": 2})
    assert (cut.status_code, "3 match, more than max=2" in cut.text) == (409, True)
    cut = api.post("/api/dead/replay", json=body | {"max": 3, "limit": 2})
    assert (cut.status_code, "3 match, more than limit=2" in cut.text) == (409, True)
    assert api.post("/api/dead/replay", json={"because": "everything", "max": 9}).status_code == 422
    assert api.post("/api/dead/replay", json=body | {"max": 3, "seen": "0" * 32}).status_code == 409
    assert api.post("/api/dead/replay", json=body | {"max": 3, "because": " "}).status_code == 422
    selection = "act=replay&kind=crm.sync&error=CrmRejected"
    assert api.get(f"/api/dead/plan?{selection}&limit=2").json()["matched"] == 3
    assert "3 dead letters match. This plan has only the oldest 2." in api.get(f"/dead/plan?{selection}&limit=2").text
    planned = api.get(f"/api/dead/plan?{selection}").json()
    done = api.post("/api/dead/replay", json=body | {"max": 3, "seen": planned["digest"], "upto": planned["upto"]}).json()
    assert (done["actor"], done["made"], done["state"]) == ("bot", 3, "done")
    report = api.get(f"/api/sweeps/{done['id']}").json()
    assert [one["outcome"] for one in report["outcomes"]] == ["replaying"] * 3
    assert api.post(f"/api/sweeps/{done['id']}/pause", json={"because": "too late"}).status_code == 409


@pytest.mark.req("Q-1")
def test_a_search_finds_jobs_and_dead_letters(api: TestClient) -> None:
    result = api.get("/api/search?q=type:crm.sync state:dead").json()
    assert {job["kind"] for job in result["jobs"]} == {letter["kind"] for letter in result["letters"]} == {"crm.sync"}
    (first,) = api.get("/api/search?q=id:1").json()["jobs"]
    assert first["id"] == 1
    wrong = api.get("/api/search?q=colour:red")
    assert wrong.status_code == 422
    assert "unknown word 'colour'" in wrong.json()["detail"]
    page = api.get("/search?q=type:crm.sync").text
    assert 'href="/jobs/' in page
    assert 'href="/dead/' in page
    assert "redrive find type:crm.sync" in page
    assert "unknown word &#39;colour&#39;" in api.get("/search?q=colour:red").text.lower()
    assert "Names: id, key, user" in api.get("/search").text
    assert 'action="/search"' in api.get("/jobs").text


def test_batches_and_partitions_reject_an_empty_selection(api: TestClient) -> None:
    nothing = api.post("/api/batches/reopen", json={"batch": "tiles", "reason": "corrupt", "max": 5, "because": "mended"})
    assert nothing.json() == {"opened": [], "skipped": {}}
    assert api.post("/api/batches/reopen", json={"batch": "tiles", "because": "everything"}).status_code == 422
    assert api.get("/api/partitions").json() == []
    assert api.get("/api/partitions/one?key=crm/acme/orders/2026-01-31").status_code in (404, 422)
    assert api.post("/api/partitions/retry", json={"because": "everything", "max": 5}).status_code == 422


def test_erasing_needs_a_reason_and_respects_the_maximum(api: TestClient) -> None:
    planned = api.post("/api/erase/plan", json={"user": "flo"}).json()
    assert (planned["count"], planned["jobs"]) == (12, 12)
    assert api.post("/api/erase", json={"user": "flo", "because": "request 4711"}).status_code == 422
    assert api.post("/api/erase", json={"user": "flo", "because": "request 4711", "max": 11}).status_code == 409
    assert api.post("/api/erase", json={"user": "flo", "because": "request 4711", "max": 12}).json() == planned
    assert api.post("/api/erase/plan", json={"user": "flo"}).json()["count"] == 0
    newest = api.get("/api/audit?limit=1&action=user.erase").json()[0]
    assert (newest["actor"], newest["because"]) == ("bot", "request 4711")
    assert "flo" not in json.dumps(newest["what"])


def test_the_audit_log_can_omit_decisions_of_policies(api: TestClient, app: App) -> None:
    app.ledger.record(actor="redrive", action="kind.park", because="all of it fails alike", what={"kind": "crm.sync"})
    app.ledger.record(actor="ann", action="key.release", because="charged by hand", what={})
    assert [one["actor"] for one in api.get("/api/audit?limit=2").json()] == ["ann", "redrive"]
    assert "redrive" not in [one["actor"] for one in api.get("/api/audit?people=true").json()]
    assert "kind.park" not in api.get("/audit").text
    assert "kind.park" in api.get("/audit?all=1").text
    assert "kind.park" in api.get("/audit?action=kind.park").text


def test_revealing_a_payload_needs_a_reason(api: TestClient) -> None:
    assert api.post("/api/jobs/1/reveal", json={}).status_code == 422
    assert SECRET in api.post("/api/jobs/1/reveal", json={"because": "the customer asks"}).json()["text"]
    newest = api.get("/api/audit?limit=1").json()[0]
    assert (newest["actor"], newest["action"]) == ("bot", "payload.reveal")


def test_a_payload_that_is_not_json_is_shown(api: TestClient, app: App, tmp_path: Path) -> None:
    from redrive.ledger import NewJob

    for number, payload in enumerate((b'{"x": NaN}', b"\xff\xfe", b'"\\ud800"', b"")):
        made = app.ledger.submit(NewJob("odd", f"shop:ann:{number}:odd:v1", payload))
        assert api.get(f"/api/jobs/{made.id}").status_code == 200
        assert api.get(f"/jobs/{made.id}").status_code == 200


def test_openapi_describes_every_route(api: TestClient) -> None:
    described = api.get("/api/openapi.json").json()
    assert described["openapi"].startswith("3.")
    assert {path.partition("{")[0].rstrip("/") for path in described["paths"]} >= {"/api/jobs", "/api/dead", "/api/sweeps"}
    assert all(path.startswith("/api/") for path in described["paths"])
    assert json.dumps(described).count("application/problem+json") > 20


@pytest.mark.parametrize(
    "query",
    ["until=0001-01-01", "since=9999-12-31", "until=9999-12-31", "since=0001-01-01", "since=0001-01-01&until=0001-01-02"],
)
def test_the_calendar_accepts_any_date(api: TestClient, query: str) -> None:
    answer = api.get(f"/api/partitions/calendar?{query}")
    assert answer.status_code in (200, 422), answer.text


@pytest.mark.req("Q-8")
def test_a_signal_needs_a_reason_and_is_recorded(api: TestClient, app: App) -> None:
    from redrive.ledger import NewJob

    job = app.ledger.submit(NewJob("orders.place", "shop:ann:signal:place:v1"))
    path = f"/api/jobs/{job.id}/signal"
    assert api.post(path, json={"name": "approved"}).status_code == 422
    sent = api.post(path, json={"name": "approved", "payload": {"by": "bob"}, "because": "by phone"})
    assert sent.json() == {"job_id": str(job.id), "stored": True, "is_dead": False}
    assert api.post("/api/jobs/9999/signal", json={"name": "approved", "because": "by phone"}).status_code == 409
    (line,) = api.get(f"/api/jobs/{job.id}").json()["steps"]
    assert (line["act"], line["name"], line["result"]) == ("signal", "approved", {"by": "bob"})
    assert (line["state"], line["ended_at"]) == ("unread", None)
    assert "approved" in api.get(f"/jobs/{job.id}").text
    newest = api.get("/api/audit?limit=1").json()[0]
    assert (newest["actor"], newest["action"]) == ("bot", "job.signal")
