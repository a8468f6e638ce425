"""Users of the host application: `who=` names them, and nothing else lets a request in."""

from __future__ import annotations

import logging
import re
import threading
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from redrive import App
from redrive.console import Rights, User, asgi
from redrive.console.security.middleware import BROWSER_COOKIE

from ..browser import HERE, TOKEN, csrf

BEN = User("ben", role="operator")
UNCHECKED: Any = User


def host(app: App, who: Any, base_url: str = "http://ops.example", **options: Any) -> TestClient:
    """Return a browser of a host application that has the console under /redrive."""
    api = FastAPI()
    api.mount("/redrive", asgi(app, who=who, **options))
    return TestClient(api, base_url=base_url, follow_redirects=False, raise_server_exceptions=False)


def header_user(scope: Any) -> User | None:
    """Return the user in the header `x-user`, as a host application reads its session."""
    name = dict(scope["headers"]).get(b"x-user")
    return None if name is None else User(name.decode(), role="operator")


@pytest.mark.req("X-4")
def test_the_user_of_the_host_application_acts_under_its_name(app: App) -> None:
    threads = []

    def who(scope: Any) -> User | None:
        threads.append(threading.current_thread())
        return header_user(scope)

    browser = host(app, who)
    browser.headers["x-user"] = "ben"
    page = browser.get("/redrive/dead")
    assert (page.status_code, ">ben<" in page.text, "Sign out" in page.text) == (200, True, False)
    assert threads[-1] is not threading.main_thread(), "a sync function may ask a database"
    plan = browser.get("/redrive/dead/plan?act=discard&ids=1").text
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', plan)) | {"because": "a test order"}
    assert browser.post("/redrive/dead/apply", data=form).status_code == 303
    entries = app.ledger.audit()
    assert {entry.actor for entry in entries} == {"ben"}


@pytest.mark.req("X-4")
def test_an_async_function_and_an_async_callable_are_awaited(app: App) -> None:
    async def who(scope: Any) -> User:
        return BEN

    class Service:
        async def __call__(self, scope: Any) -> User:
            return BEN

    def forward(scope: Any) -> Any:
        return who(scope)

    for function in (who, Service(), forward):
        assert ">ben<" in host(app, function).get("/redrive/").text


@pytest.mark.req("X-4")
def test_a_request_without_a_user_is_sent_to_the_login_of_the_host(app: App) -> None:
    browser = host(app, header_user, login_url="/accounts/login")
    answer = browser.get("/redrive/dead?kind=a")
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/accounts/login?next=%2Fredrive%2Fdead%3Fkind%3Da",
    )
    placed = host(app, header_user, login_url="https://login.example/?to={next}&app=ops").get("/redrive/")
    assert placed.headers["location"] == "https://login.example/?to=%2Fredrive%2F&app=ops"
    api = browser.get("/redrive/api/status")
    assert (api.status_code, api.headers["content-type"]) == (401, "application/problem+json")
    assert browser.post("/redrive/dead/apply", data={"ids": "1"}).status_code == 401
    assert browser.get("/redrive/live").status_code == 401


@pytest.mark.req("X-4")
def test_without_a_login_url_the_page_says_where_to_sign_in(app: App) -> None:
    page = host(app, lambda scope: None).get("/redrive/dead")
    assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "Sign in to the application that this console belongs to." in page.text
    assert "crm.sync" not in page.text
    local = TestClient(asgi(app, who=lambda scope: None), base_url=HERE, client=("127.0.0.1", 1), follow_redirects=False)
    assert local.get("/").status_code == 401, "the account of this machine is not let in either"


@pytest.mark.req("X-4")
@pytest.mark.parametrize(
    ("who", "line"),
    [
        (lambda scope: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda scope: "ben", "returned str; return redrive.console.User(...) or None"),
        (lambda scope: True, "returned bool; return redrive.console.User(...) or None"),
        (lambda scope: User("redrive"), "raised ValueError: User: invalid name 'redrive'"),
        (lambda scope: User(""), "raised ValueError: User: invalid name ''"),
        (lambda scope: scope["user"], "raised KeyError: 'user'"),
    ],
)
def test_a_failing_function_lets_no_request_in(app: App, caplog: pytest.LogCaptureFixture, who: Any, line: str) -> None:
    browser = host(app, who)
    with caplog.at_level(logging.INFO, "redrive.console"):
        page = browser.get("/redrive/dead")
    assert (page.status_code, "crm.sync" in page.text) == (500, False)
    assert "Sign-in failed with an unexpected error." in page.text
    assert len(caplog.records) == 1
    message = caplog.messages[0]
    assert (message.startswith(f"console: who= {line}"), "\n" in message) == (True, False)
    assert browser.get("/redrive/api/status").status_code == 500
    assert browser.post("/redrive/api/dead/discard", json={"ids": [1], "because": "x"}).status_code == 500
    assert (browser.get("/redrive/health").status_code, browser.get("/redrive/static/console.css").status_code) == (200, 200)
    assert app.ledger.audit() == []


@pytest.mark.req("X-4")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_form_belongs_to_one_browser_and_one_user(app: App, scheme: str) -> None:
    name = f"__Host-{BROWSER_COOKIE}" if scheme == "https" else BROWSER_COOKIE
    url = f"{scheme}://ops.example"
    browser, other = host(app, header_user, url), host(app, header_user, url)
    for each in (browser, other):
        each.headers["x-user"] = "ben"
    first = browser.get("/redrive/dead")
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(f"{name}=")
    assert {"HttpOnly", "Path=/", "SameSite=Strict"} <= set(cookie.split("; "))
    assert ("Secure" in cookie) == (scheme == "https")
    assert "set-cookie" not in browser.get("/redrive/jobs").headers
    token = csrf(first.text)
    assert token == csrf(browser.get("/redrive/jobs").text)
    body = {"ids": [1], "because": "x"}

    def act(client: TestClient, csrf_token: str, **headers: str) -> int:
        return client.post("/redrive/api/dead/discard", json=body, headers={"x-csrf-token": csrf_token, **headers}).status_code

    assert act(browser, "") == 403
    assert act(browser, "0" * 64) == 403
    assert act(other, token) == 403, "another browser"
    assert act(browser, token, **{"x-user": "eve"}) == 403, "another user of the same browser"
    assert act(browser, token, origin="https://evil.example") == 403
    assert act(browser, token, **{"sec-fetch-site": "same-site"}) == 403
    assert app.ledger.audit() == []
    forged = host(app, header_user, url)
    forged.cookies.set(name, "short")
    assert forged.get("/redrive/dead", headers={"x-user": "ben"}).headers["set-cookie"].startswith(f"{name}=")
    assert act(browser, token) == 200


@pytest.mark.req("X-4")
def test_programs_use_a_token_beside_the_users_of_the_host(app: App) -> None:
    browser = host(app, header_user, token=TOKEN)
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert browser.get("/redrive/api/status", headers=bearer).status_code == 200
    wrong = {"authorization": f"Bearer {TOKEN}x"}
    assert browser.get("/redrive/api/status", headers=wrong).status_code == 401
    both = wrong | {"x-user": "ben"}
    assert browser.get("/redrive/api/status", headers=both).status_code == 200, "the host may have tokens of its own"


@pytest.mark.req("X-4")
def test_a_viewer_of_the_host_cannot_act(app: App) -> None:
    for options in ({"who": lambda scope: User("ann")}, {"who": lambda scope: BEN, "read_only": True}):
        browser = host(app, **options)
        page = browser.get("/redrive/dead/1")
        assert ("read-only" in page.text, "/dead/plan" in page.text) == (True, False)
        headers = {"x-csrf-token": csrf(page.text)}
        body = {"ids": [1], "because": "x"}
        assert browser.post("/redrive/api/dead/discard", json=body, headers=headers).status_code == 403


@pytest.mark.req("X-4")
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"who": "ann"}, TypeError, r"who= must be a function of the ASGI scope, not str"),
        ({"login_url": "/login"}, ValueError, r"login_url=: it needs who="),
        ({"who": header_user, "login_url": "login"}, ValueError, r"login_url=: invalid URL 'login'; use /login or https"),
        ({"who": header_user, "login_url": "//evil.example"}, ValueError, r"login_url=: invalid URL"),
        ({"who": header_user, "login_url": "javascript:alert(1)"}, ValueError, r"login_url=: invalid URL"),
    ],
)
def test_an_invalid_option_is_reported_at_the_start(
    app: App, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        asgi(app, **options)


def test_a_target_other_than_an_app_is_reported_at_the_start() -> None:
    with pytest.raises(TypeError, match="pass an App or an open ledger, not str"):
        asgi("sqlite:///redrive.db")  # type: ignore[arg-type]


@pytest.mark.req("X-4")
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: UNCHECKED(7), TypeError, "User: name must be text, not int"),
        (lambda: User("x" * 101), ValueError, "use 1 to 100 printable characters"),
        (lambda: User("ann\n"), ValueError, "invalid name"),
        (lambda: User(" ann"), ValueError, "without surrounding space"),
        (lambda: UNCHECKED("ann", role="admin"), ValueError, "User: invalid role 'admin'; use viewer or operator"),
        (lambda: UNCHECKED("ann", rights={"replay"}), TypeError, "User: rights must be redrive.console.Rights, not set"),
        (lambda: Rights(acts={"repaly"}), ValueError, "acts=: unknown act 'repaly'; did you mean 'replay'?"),
        (lambda: Rights(acts="replay"), TypeError, "acts= must be a collection of texts"),
        (lambda: Rights(job_types={""}), TypeError, "job_types= must have texts"),
    ],
)
def test_an_invalid_user_is_named(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        make()
    assert message in str(raised.value)
