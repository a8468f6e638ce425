"""The gate: nothing reaches a page that is not meant: from this machine, or signed in."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from redrive import App
from redrive.console import asgi
from redrive.console.gate import COOKIE

from .browser import HERE, PASSWORD, TOKEN, client, csrf, signed_in

# ---- this machine only ----


STRANGE = ["evil.example", "127.0.0.1.evil.example", "192.168.1.7:8321", "", "[::2]", "[::1", "[x]", "a:b:c"]


@pytest.mark.parametrize("host", STRANGE)
def test_without_a_password_only_loopback_names_are_answered(app: App, host: str) -> None:
    answer = client(app).get("/", headers={"host": host})
    assert answer.status_code == 403
    assert "its own machine only" in answer.text


@pytest.mark.parametrize("host", ["localhost:8321", "127.0.0.1", "[::1]:8321"])
def test_loopback_is_answered_by_any_of_its_names(app: App, host: str) -> None:
    assert client(app).get("/", headers={"host": host}).status_code == 200


def test_without_a_password_other_machines_are_refused_whatever_they_say(app: App) -> None:
    outside = TestClient(asgi(app), base_url=HERE, client=("10.1.2.3", 50_000))
    assert outside.get("/").status_code == 403
    assert outside.get("/api/status").headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_a_proxy_on_this_machine_is_not_this_machine(app: App, header: str) -> None:
    answer = client(app).get("/", headers={header: "203.0.113.9"})
    assert answer.status_code == 403
    assert "its own machine only" in answer.text


def test_there_are_no_websockets(app: App) -> None:
    for path in ("/", "/live", "/static/console.js"):
        with pytest.raises(WebSocketDisconnect), client(app, password=PASSWORD).websocket_connect(path):
            pass


# ---- who ----


def test_the_login_page_tells_nothing_of_the_password(app: App) -> None:
    """A token signed by a key of the password would be a thing to try passwords on, as fast as one likes."""
    page = client(app, password=PASSWORD).get("/login").text
    assert "csrf" not in page
    assert not re.search(r"[0-9a-f]{32}", page)


@pytest.mark.parametrize(
    "header", [{"origin": "https://evil.example"}, {"origin": "http://[::1"}, {"sec-fetch-site": "cross-site"}]
)
def test_another_site_cannot_sign_somebody_in(app: App, header: dict[str, str]) -> None:
    form = {"name": "mallory", "password": PASSWORD}
    answer = client(app, password=PASSWORD).post("/login", data=form, headers=header)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def test_a_name_of_a_program_may_have_any_letters(app: App) -> None:
    told = {b"authorization": f"Bearer {TOKEN}".encode(), b"redrive-actor": "Jürgen 部署".encode()}
    body = {"ids": [1], "because": "it is back"}
    assert client(app, token=TOKEN).post("/api/dead/replay", json=body, headers=told).json()["actor"] == "Jürgen 部署"


def test_nobody_sees_a_page_before_they_have_signed_in(app: App) -> None:
    browser = client(app, password=PASSWORD)
    for path in ("/", "/dead", "/jobs/1", "/audit?verify=1"):
        answer = browser.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login")
    assert browser.get("/api/status").status_code == 401
    assert browser.get("/live").status_code == 401
    assert browser.get("/metrics").status_code in (303, 401)
    assert browser.get("/health").json() == {"status": "ok"}
    assert browser.get("/ready").json() == {"status": "ok"}


def test_the_session_is_a_strict_cookie_that_scripts_cannot_read(app: App) -> None:
    browser = client(app, password=PASSWORD)
    form = {"name": "ann", "password": PASSWORD}
    cookie = browser.post("/login", data=form).headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie, "http on loopback"
    tls = TestClient(asgi(app, password=PASSWORD), base_url="https://ops.example", follow_redirects=False)
    assert "Secure" in tls.post("/login", data=form).headers["set-cookie"]


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", ""])
def test_signing_in_leads_to_our_pages_only(app: App, to: str) -> None:
    browser = client(app, password=PASSWORD)
    form = {"name": "ann", "password": PASSWORD, "next": to}
    assert browser.post("/login", data=form).headers["location"] == "/"


def test_after_a_few_wrong_passwords_one_waits(app: App) -> None:
    browser = client(app, password=PASSWORD)
    form = {"name": "ann", "password": "wrong password"}
    assert [browser.post("/login", data=form).status_code for _ in range(5)] == [403] * 5
    answer = browser.post("/login", data=form | {"password": PASSWORD})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0


def test_signing_out_makes_the_browser_forget(app: App) -> None:
    browser = signed_in(app)
    answer = browser.post("/logout", data={"csrf": csrf(browser.get("/dead").text)})
    assert answer.status_code == 303
    assert browser.get("/dead").status_code == 303


def test_a_token_is_for_programs(app: App) -> None:
    program = client(app, token=TOKEN)
    assert program.get("/api/status").status_code == 401
    assert program.get("/api/status", headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
    told = {"authorization": f"Bearer {TOKEN}", "redrive-actor": "deploy bot"}
    assert program.get("/api/status", headers=told).status_code == 200
    body = {"ids": [1], "because": "it is back"}
    assert program.post("/api/dead/replay", json=body, headers=told).json()["actor"] == "deploy bot"
