"""Permissions of roles, and actions that cover exactly their preview."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from redrive import App, Event
from redrive.console import asgi
from redrive.console.api import ROUTERS as API_ROUTERS
from redrive.console.pages import ROUTERS as PAGE_ROUTERS
from redrive.console.security.middleware import MAX_BODY_BYTES
from redrive.ledger import NewJob

from ..browser import TOKEN, VIEWER_PASSWORD, client, csrf, signed_in


def test_a_form_without_its_csrf_token_does_nothing(app: App) -> None:
    for browser in (client(app), signed_in(app)):
        form = {"act": "replay", "ids": "1", "because": "x"}
        for csrf_token in (None, "", "0" * 64):
            answer = browser.post("/dead/apply", data=form if csrf_token is None else form | {"csrf": csrf_token})
            assert answer.status_code == 403
        assert browser.post("/api/dead/replay", json={"ids": [1], "because": "x"}).status_code == 403
    assert app.ledger.audit() == []


@pytest.mark.parametrize("header", [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}])
def test_another_site_cannot_act_even_if_it_knew_the_token(app: App, header: dict[str, str]) -> None:
    browser = client(app)
    form = {"csrf": csrf(browser.get("/dead").text), "act": "replay", "ids": "1", "because": "x"}
    assert browser.post("/dead/apply", data=form, headers=header).status_code == 403
    assert app.ledger.audit() == []


def test_replay_of_an_event_rejects_an_unknown_handler(app: App) -> None:
    app.on("paid", name="mail")(lambda event: None)
    app.receive(Event("paid", {}, id="p-1", source="web"))
    browser = client(app)
    before = app.ledger.counts()
    form = {"csrf": csrf(browser.get("/events/show?id=p-1").text), "id": "p-1", "handlers": "crm.sync", "because": "x"}
    page = browser.post("/events/replay", data=form)
    assert (page.status_code, "is not a handler of events of type" in page.text) == (422, True)
    body = {"id": "p-1", "handlers": ["maill"], "because": "x"}
    answer = browser.post("/api/events/replay", json=body, headers={"x-csrf-token": form["csrf"]})
    assert (answer.status_code, "did you mean 'mail'?" in answer.json()["detail"]) == (422, True)
    assert app.ledger.counts() == before


ROUTES = [route for router in (*PAGE_ROUTERS, *API_ROUTERS) for route in router.routes if isinstance(route, APIRoute)]
CHANGING = [
    re.sub(r"\{\w+\}", "1", route.path)
    for route in ROUTES
    if (route.methods or set()) - {"GET", "HEAD", "OPTIONS"} and route.path not in ("/login", "/logout")
]


def test_every_changing_route_needs_a_csrf_token(app: App) -> None:
    assert len(CHANGING) > 20
    browser = client(app)
    for path in (*CHANGING, "/logout", "/login"):
        assert browser.post(path, json={}).status_code == 403, path
        assert browser.post(path, data={"csrf": "x"}).status_code == 403, path


@pytest.mark.req("O-4")
@pytest.mark.parametrize("access", [{"password": VIEWER_PASSWORD}, {"read_only": True}])
def test_a_viewer_sees_no_buttons_and_cannot_act(app: App, access: dict[str, object]) -> None:
    browser = signed_in(app, **access)  # type: ignore[arg-type]
    page = browser.get("/dead/1")
    assert page.status_code == 200
    assert "read-only" in page.text
    assert "/dead/plan" not in page.text
    form = {"csrf": csrf(page.text), "act": "replay", "ids": "1", "because": "x"}
    assert browser.post("/dead/apply", data=form).status_code == 403
    assert browser.post("/dead/1/reveal", data=form).status_code == 403
    headers = {"x-csrf-token": form["csrf"]}
    assert browser.post("/api/dead/replay", json={"ids": [1], "because": "x"}, headers=headers).status_code == 403
    assert app.ledger.audit() == []


def test_every_changing_route_rejects_viewers(app: App) -> None:
    looking = signed_in(app, VIEWER_PASSWORD)
    token = {"authorization": "Bearer only-looking-0123456789"}
    program = client(app, token=TOKEN, viewer_token="only-looking-0123456789")
    form = {"csrf": csrf(looking.get("/dead").text)}
    for path in CHANGING:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            refused = looking.request(method, path, data=form), program.request(method, path, json={}, headers=token)
            assert {answer.status_code for answer in refused} == {403}, path
    assert app.ledger.audit() == []


def test_an_incomplete_form_changes_nothing(app: App) -> None:
    """A form for `user=anna` that breaks off after `ann` must not erase the data of ann."""
    page = client(app).get("/dead/1").text
    messages: list[dict[str, Any]] = []
    body = f"csrf={csrf(page)}&because=request+4711&seen=1&typed=1&user=ann"
    parts: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": body.encode(), "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> dict[str, Any]:
        return next(parts)

    async def send(message: Any) -> None:
        messages.append(message)

    console = asgi(app)
    cookie = f"redrive_local={console.access.local_cookie()}".encode()
    headers = [(b"host", b"127.0.0.1"), (b"cookie", cookie), (b"content-type", b"application/x-www-form-urlencoded")]
    scope = {
        "type": "http", "method": "POST", "path": "/erase/apply", "query_string": b"", "headers": headers,
        "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip
    asyncio.run(console(scope, receive, send))
    assert messages[0]["status"] == 413
    assert app.ledger.audit() == []


def test_the_audit_log_records_the_name_of_the_person(app: App) -> None:
    browser = signed_in(app)
    page = browser.get("/dead/plan?act=replay&ids=1").text
    seen = re.search(r'name="seen" value="(\w+)"', page)
    assert seen is not None
    form = {"csrf": csrf(page), "act": "replay", "ids": "1", "because": "it is back", "seen": seen[1]}
    assert browser.post("/dead/apply", data=form).headers["location"] == "/sweeps/1"
    (entry,) = app.ledger.audit()
    assert (entry.actor, entry.action, entry.because) == ("ann", "dead.replay", "it is back")


@pytest.mark.req("O-2")
def test_an_action_covers_exactly_the_previewed_dead_letters(app: App) -> None:
    browser = client(app)
    page = browser.get("/dead/plan?act=replay&kind=crm.sync").text
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))
    form = hidden | {"because": "it is back", "typed": "1"}
    # Dead letters after the preview are excluded. A changed preview is rejected.
    app.ledger.submit(NewJob("crm.sync", "shop:ann:c-2:sync:v1"))
    app.ledger.settle([lease.dead("permanent") for lease in app.ledger.claim({"crm.sync": 1}, worker="w")])
    assert browser.post("/dead/apply", data=form | {"typed": "2"}).status_code == 422
    assert browser.post("/dead/apply", data=form | {"because": " "}).status_code == 422
    assert browser.post("/dead/apply", data=form).headers["location"] == "/sweeps/1"
    repeated = browser.post("/dead/apply", data=form)
    assert repeated.status_code in (409, 422)
    assert [(entry.action, entry.what["count"]) for entry in app.ledger.audit()] == [("dead.replay", 1)]
    assert [letter.status for letter in app.ledger.dead_letters()] == ["replaying", "pending"]


def test_a_body_is_limited_in_size(app: App) -> None:
    answer = client(app).post("/dead/apply", content=b"x" * (MAX_BODY_BYTES + 1), headers={"content-type": "text/plain"})
    assert answer.status_code == 413
