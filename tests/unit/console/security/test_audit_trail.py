"""The audit log says how an actor came in, and who read or exported which payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from redrive import App, Event
from redrive.console import User, asgi
from redrive.ledger import NewJob
from redrive.ops import Operator
from redrive.ops.context import user
from redrive.ops.sign_in import read_audit
from tests.unit.cli.command import call

from ..browser import HERE, TOKEN, client, csrf, signed_in


def act(browser: TestClient, number: int, **headers: str) -> None:
    token = {} if headers else {"x-csrf-token": csrf(browser.get("/jobs").text)}
    answer = browser.post("/api/jobs/cancel", json={"ids": [number], "because": "x"}, headers=token | headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.req("X-4")
def test_every_entry_says_how_the_actor_came_in(app: App) -> None:
    jobs = [app.ledger.submit(NewJob("mail", f"m-{number}")).id for number in range(6)]
    app.ledger.record(actor="ann", action="dead.replay", because="before this version", what={})
    host = TestClient(asgi(app, who=lambda scope: User("ben", role="operator")), base_url=HERE)
    operator = Operator(app, actor="root")
    named = operator.tokens.create("deploy-bot", role="operator", because="x")
    act(client(app), jobs[0])
    act(signed_in(app), jobs[1])
    act(client(app, token=TOKEN), jobs[2], authorization=f"Bearer {TOKEN}", **{"redrive-actor": "deploy"})
    act(client(app, token=TOKEN), jobs[3], authorization=f"Bearer {named.token}")
    act(host, jobs[4])
    url = app.ledger.url
    status, _ = call("jobs", "cancel", str(jobs[5]), "--because", "x", "--actor", "eve", "--yes", "--ledger", url)
    assert status == 0
    decisions = operator.audit.find(action="job.cancel")
    by = {(each.actor, each.via) for each in decisions}
    assert by == {
        (user(), "loopback"),
        ("ann", "password"),
        ("deploy", "token"),
        ("deploy-bot", "token deploy-bot"),
        ("ben", "host"),
        ("eve", f"account {user()}"),
    }
    assert all("via" not in each.what for each in decisions)
    assert operator.audit.verify().holds, "entries from before are unchanged"
    page = client(app).get("/audit").text
    assert ("token deploy-bot" in page, "loopback" in page) == (True, True)
    listed = client(app).get("/api/audit?action=job.cancel").json()
    assert {each["via"] for each in listed} == {via for _, via in by}
    _, printed = call("audit", "list", "--ledger", url, width=200)
    assert f"account {user()}" in printed


@pytest.mark.req("X-4")
def test_an_erasure_says_how_the_actor_came_in_without_another_name(app: App) -> None:
    bob = Operator(app, actor="bob", via="account bob").user_data
    bob.erase(bob.plan_erasure("ann"), because="a request of ann")
    (entry, *_) = Operator(app, actor="root").audit.find(action="user.erase")
    assert (entry.actor, entry.via) == ("bob", "account")
    assert "ann" not in entry.because


@pytest.mark.req("X-4")
def test_reads_of_payloads_are_recorded_on_request(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.on("paid", name="mail")(lambda event: None)
    app.receive(Event("paid", {}, id="p-1", source="web"))

    def reads() -> list[Any]:
        entries = Operator(app, actor="root").audit.find(action="payload.read")
        return [(each.actor, dict(each.what), each.via) for each in reversed(entries)]

    silent = client(app)
    assert silent.get("/dead/1").status_code == 200
    assert reads() == []
    now = [0.0]
    monkeypatch.setattr(read_audit, "monotonic", lambda: now[0])
    watched = signed_in(app, "only looking", audit_reads=True)
    for path in ("/dead/1", "/dead/1", "/api/dead/1", "/jobs/1", "/events/show?id=p-1", "/jobs", "/dead", "/", "/jobs/99"):
        watched.get(path)
    expected = [("ann", {"dead": 1}, "password"), ("ann", {"job": 1}, "password"), ("ann", {"event": "p-1"}, "password")]
    assert reads() == expected, "once, and not for lists"
    now[0] = read_audit.AGAIN_SECONDS + 1
    watched.get("/dead/1")
    assert len(reads()) == 4
    assert "hunter2" not in str(app.ledger.audit())


@pytest.mark.req("X-4")
@pytest.mark.parametrize("because", [None, "INC-42"])
def test_every_export_and_reveal_is_recorded(app: App, because: str | None) -> None:
    operator = Operator(app, actor="ann", via="account ann")
    letters = list(operator.dead_letters.export(because=because))
    assert ("hunter2" in str(letters)) == (because is not None)
    operator.dead_letters.reveal(1, because="INC-42")
    export, reveal = reversed(operator.audit.find())
    assert (export.action, export.because, export.via) == ("dead.export", because or "secrets masked", "account ann")
    assert export.what.get("masked", False) == (because is None)
    assert reveal.action == "payload.reveal"


def test_a_read_that_cannot_be_recorded_fails(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = signed_in(app, audit_reads=True)

    def fail(*_: Any, **__: Any) -> Callable[..., Any]:
        raise OSError("the disk is full")

    monkeypatch.setattr(type(app.ledger), "record", fail)
    quiet = TestClient(browser.app, base_url=HERE, cookies=browser.cookies, raise_server_exceptions=False)
    page = quiet.get("/dead/1")
    assert (page.status_code, "crm.sync" in page.text) == (500, False)
