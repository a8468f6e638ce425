"""The security middleware: only local or authenticated requests reach a page."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from redrive import App
from redrive.console import asgi
from redrive.console.security.middleware import SESSION_COOKIE, parse_form
from redrive.ops.context import user

from ..browser import HERE, PASSWORD, TOKEN, VIEWER_PASSWORD, client, csrf, let_in, signed_in

# ---- this machine only ----


FOREIGN_HOSTS = ["evil.example", "127.0.0.1.evil.example", "192.168.1.7:8321", "", "[::2]", "[::1", "[x]", "a:b:c"]


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_without_a_password_only_loopback_names_are_served(app: App, host: str) -> None:
    answer = client(app).get("/", headers={"host": host})
    assert answer.status_code == 403
    assert "requests from its own machine" in answer.text


@pytest.mark.parametrize("host", ["localhost:8321", "127.0.0.1", "[::1]:8321"])
def test_loopback_is_served_by_any_of_its_names(app: App, host: str) -> None:
    console = asgi(app)
    browser = TestClient(console, base_url=HERE, client=("127.0.0.1", 50_000), cookies=let_in(console, f"http://{host}"))
    assert browser.get("/", headers={"host": host}).status_code == 200


def test_without_a_password_other_machines_are_rejected(app: App) -> None:
    console = asgi(app)
    outside = TestClient(console, base_url=HERE, client=("10.1.2.3", 50_000), cookies=let_in(console, HERE))
    assert outside.get("/").status_code == 403
    assert outside.get("/api/status").headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_a_proxy_on_this_machine_is_not_this_machine(app: App, header: str) -> None:
    answer = client(app).get("/", headers={header: "203.0.113.9"})
    assert answer.status_code == 403
    assert "requests from its own machine" in answer.text


def test_websockets_are_rejected(app: App) -> None:
    for path in ("/", "/live", "/static/console.js"):
        with pytest.raises(WebSocketDisconnect), client(app, password=PASSWORD).websocket_connect(path):
            pass


# ---- login ----


def test_the_login_page_reveals_nothing_about_the_password(app: App) -> None:
    """A token derived from the password would allow guessing passwords offline."""
    page = client(app, password=PASSWORD).get("/login").text
    assert "csrf" not in page
    assert not re.search(r"[0-9a-f]{32}", page)


@pytest.mark.parametrize(
    "header", [{"origin": "https://evil.example"}, {"origin": "http://[::1"}, {"sec-fetch-site": "cross-site"}]
)
def test_another_site_cannot_sign_a_person_in(app: App, header: dict[str, str]) -> None:
    form = {"name": "mallory", "password": PASSWORD}
    answer = client(app, password=PASSWORD).post("/login", data=form, headers=header)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def test_the_actor_header_is_read_as_utf8(app: App) -> None:
    headers = {b"authorization": f"Bearer {TOKEN}".encode(), b"redrive-actor": "Jürgen 部署".encode()}
    body = {"ids": [1], "because": "it is back"}
    assert client(app, token=TOKEN).post("/api/dead/replay", json=body, headers=headers).json()["actor"] == "Jürgen 部署"


def test_pages_need_a_login(app: App) -> None:
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
    assert cookie.startswith(f"{SESSION_COOKIE}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie, "http on loopback"
    tls = TestClient(asgi(app, password=PASSWORD), base_url="https://ops.example", follow_redirects=False)
    assert "Secure" in tls.post("/login", data=form).headers["set-cookie"]


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", ""])
def test_a_login_only_redirects_to_pages_of_the_console(app: App, to: str) -> None:
    browser = client(app, password=PASSWORD)
    form = {"name": "ann", "password": PASSWORD, "next": to}
    assert browser.post("/login", data=form).headers["location"] == "/"


def test_after_five_wrong_passwords_the_address_waits(app: App) -> None:
    browser = client(app, password=PASSWORD)
    form = {"name": "ann", "password": "wrong password"}
    assert [browser.post("/login", data=form).status_code for _ in range(5)] == [403] * 5
    answer = browser.post("/login", data=form | {"password": PASSWORD})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0


def test_signing_out_ends_the_session(app: App) -> None:
    browser = signed_in(app)
    answer = browser.post("/logout", data={"csrf": csrf(browser.get("/dead").text)})
    assert answer.status_code == 303
    assert browser.get("/dead").status_code == 303


def test_a_program_authenticates_with_a_token(app: App) -> None:
    program = client(app, token=TOKEN)
    assert program.get("/api/status").status_code == 401
    assert program.get("/api/status", headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
    headers = {"authorization": f"Bearer {TOKEN}", "redrive-actor": "deploy bot"}
    assert program.get("/api/status", headers=headers).status_code == 200
    body = {"ids": [1], "because": "it is back"}
    assert program.post("/api/dead/replay", json=body, headers=headers).json()["actor"] == "deploy bot"


# ---- the account that runs the server ----


def test_without_a_password_the_token_of_the_url_is_needed(app: App, caplog: pytest.LogCaptureFixture) -> None:
    console = asgi(app)
    browser = TestClient(console, base_url=HERE, client=("127.0.0.1", 50_000), follow_redirects=False)
    for path in ("/", "/dead", "/api/status", "/metrics", "/?token=guess"):
        assert browser.get(path).status_code == 401
    assert browser.post("/api/dead/replay", json={"ids": [1], "because": "x"}).status_code == 401
    assert len(caplog.records) == 1
    address = caplog.records[0].getMessage().partition("open ")[2].partition(" on this")[0]
    answer = browser.get(address)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=lax"} <= set(answer.headers["set-cookie"].split("; "))
    assert console.access.local_token not in answer.headers["set-cookie"]
    assert browser.get("/dead").status_code == 200
    assert browser.get("/health").status_code == 200


def test_the_token_of_the_url_keeps_the_page_and_its_query(app: App) -> None:
    console = asgi(app)
    browser = TestClient(console, base_url=HERE, client=("127.0.0.1", 50_000), follow_redirects=False)
    answer = browser.get("/dead", params={"kind": "crm sync", "token": console.access.local_token})
    assert answer.headers["location"] == "/dead?kind=crm+sync"


def test_the_token_of_the_url_works_for_programs(app: App) -> None:
    console = asgi(app)
    headers = {"authorization": f"Bearer {console.access.local_token}"}
    program = TestClient(console, base_url=HERE, client=("127.0.0.1", 50_000), headers=headers)
    body = {"ids": [1], "because": "it is back"}
    assert program.post("/api/dead/replay", json=body).json()["actor"] == user()
    named = program.post("/api/dead/discard", json=body | {"ids": [2]}, headers={"redrive-actor": "deploy"})
    assert named.json()["actor"] == "deploy"


# ---- sessions and limits ----


@pytest.mark.req("O-4")
def test_signing_out_ends_a_copied_cookie_in_every_process(app: App) -> None:
    browser = signed_in(app)
    cookie = browser.cookies[SESSION_COOKIE]
    elsewhere = client(app, password=PASSWORD, viewer_password=VIEWER_PASSWORD)
    browser.post("/logout", data={"csrf": csrf(browser.get("/dead").text)})
    for thief in (client(app, password=PASSWORD, viewer_password=VIEWER_PASSWORD), elsewhere):
        thief.cookies.set(SESSION_COOKIE, cookie)
        assert thief.get("/dead").status_code == 303
        assert thief.get("/api/status").status_code == 401


def test_a_known_browser_signs_in_while_its_address_is_throttled(app: App) -> None:
    browser = signed_in(app)
    stranger = TestClient(browser.app, base_url=HERE, client=("127.0.0.1", 50_000), follow_redirects=False)
    form = {"name": "ann", "password": "wrong password"}
    assert [stranger.post("/login", data=form).status_code for _ in range(6)] == [403] * 5 + [429]
    right = {"name": "ann", "password": PASSWORD}
    assert stranger.post("/login", data=right).status_code == 429
    browser.cookies.delete(SESSION_COOKIE)  # the session has ended, but the browser is still known
    assert browser.post("/login", data=right).status_code == 303


def test_a_forged_forwarding_header_does_not_reset_the_throttle(app: App) -> None:
    browser = client(app, password=PASSWORD)
    form = {"name": "ann", "password": "wrong password"}
    answers = [
        browser.post("/login", data=form, headers={"x-forwarded-for": f"203.0.113.{number}"}).status_code for number in range(7)
    ]
    assert answers == [403] * 5 + [429] * 2


def test_the_login_form_is_limited_in_size(app: App) -> None:
    browser = client(app, password=PASSWORD)
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert browser.post("/login", content="name=" + "x" * 9000, headers=headers).status_code == 413
    assert browser.post("/login", content="&".join(["name=x"] * 11), headers=headers).status_code == 413


def test_repeated_fields_of_a_form_are_joined_by_newlines() -> None:
    body = "&".join(f"ids={number}" for number in range(20_000)).encode()
    assert parse_form(body, 20_000)["ids"].splitlines() == [str(number) for number in range(20_000)]
