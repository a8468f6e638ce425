"""The gate: nothing reaches a page that is not meant, and browsers are told to keep to it."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from redrive import App
from redrive.console import asgi
from redrive.console.api import API
from redrive.console.gate import COOKIE, MOST
from redrive.console.pages import PAGES
from redrive.ledger import NewJob

PASSWORD, TOKEN, LOOKING = "correct horse", "0123456789abcdef-token", "only looking"
HERE = "http://127.0.0.1:8321"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with one dead letter. Made once: most of the time goes into its tables."""
    path = tmp_path_factory.mktemp("gate") / "ledger.db"
    with App(f"sqlite:///{path}") as app:
        app.ledger.submit(NewJob("crm.sync", "shop:ann:c-1:sync:v1", b'{"password": "hunter2"}'))
        app.ledger.settle([lease.dead("permanent") for lease in app.ledger.claim({"crm.sync": 1}, worker="w")])
    return path


@pytest.fixture
def app(made: Path, tmp_path: Path) -> Iterator[App]:
    with App(f"sqlite:///{shutil.copy(made, tmp_path / 'ledger.db')}") as copied:
        yield copied


def client(app: App, **access: object) -> TestClient:
    made = asgi(app, **access)  # type: ignore[arg-type]
    return TestClient(made, base_url=HERE, client=("127.0.0.1", 50_000), follow_redirects=False)


def csrf(page: str) -> str:
    found = re.search(r'name="csrf" content="([^"]+)"', page)
    assert found is not None
    return found[1]


def signed_in(app: App, password: str = PASSWORD, **access: object) -> TestClient:
    browser = client(app, password=PASSWORD, viewer_password=LOOKING, **access)
    form = {"name": "ann", "password": password, "next": "/dead"}
    answer = browser.post("/login", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dead")
    return browser


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


# ---- acting ----


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


ROUTES = [route for router in (*PAGES, *API) for route in router.routes if isinstance(route, APIRoute)]
CHANGING = [
    re.sub(r"\{\w+\}", "1", route.path)
    for route in ROUTES
    if (route.methods or set()) - {"GET", "HEAD", "OPTIONS"} and route.path not in ("/login", "/logout")
]


def test_every_route_that_changes_something_asks_for_the_token(app: App) -> None:
    assert len(CHANGING) > 20
    browser = client(app)
    for path in (*CHANGING, "/logout", "/login"):
        assert browser.post(path, json={}).status_code == 403, path
        assert browser.post(path, data={"csrf": "x"}).status_code == 403, path


@pytest.mark.req("O-4")
@pytest.mark.parametrize("access", [{"password": LOOKING}, {"read_only": True}])
def test_who_may_only_look_sees_no_buttons_and_presses_none(app: App, access: dict[str, object]) -> None:
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


def test_whoever_may_only_look_is_refused_by_every_route_that_changes_something(app: App) -> None:
    looking = signed_in(app, LOOKING)
    token = {"authorization": "Bearer only-looking-0123456789"}
    program = client(app, token=TOKEN, viewer_token="only-looking-0123456789")
    form = {"csrf": csrf(looking.get("/dead").text)}
    for path in CHANGING:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            refused = looking.request(method, path, data=form), program.request(method, path, json={}, headers=token)
            assert {answer.status_code for answer in refused} == {403}, path
    assert app.ledger.audit() == []


def test_what_broke_off_on_its_way_does_nothing(app: App) -> None:
    """`erase user=anna` that ends after `ann` is not what was sent."""
    page = client(app).get("/dead/1").text
    heard: list[dict[str, Any]] = []
    body = f"csrf={csrf(page)}&because=request+4711&seen=1&typed=1&user=ann"
    parts: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": body.encode(), "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> dict[str, Any]:
        return next(parts)

    async def send(message: Any) -> None:
        heard.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/x-www-form-urlencoded")]
    scope = {
        "type": "http", "method": "POST", "path": "/erase/apply", "query_string": b"", "headers": headers,
        "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip
    asyncio.run(asgi(app)(scope, receive, send))
    assert heard[0]["status"] == 413
    assert app.ledger.audit() == []


def test_what_a_person_does_is_in_the_audit_under_their_name(app: App) -> None:
    browser = signed_in(app)
    page = browser.get("/dead/plan?act=replay&ids=1").text
    seen = re.search(r'name="seen" value="(\w+)"', page)
    assert seen is not None
    form = {"csrf": csrf(page), "act": "replay", "ids": "1", "because": "it is back", "seen": seen[1]}
    assert browser.post("/dead/apply", data=form).headers["location"] == "/sweeps/1"
    (entry,) = app.ledger.audit()
    assert (entry.actor, entry.action, entry.because) == ("ann", "dead.replay", "it is back")


@pytest.mark.req("O-2")
def test_what_is_done_is_what_was_looked_at(app: App) -> None:
    browser = client(app)
    page = browser.get("/dead/plan?act=replay&kind=crm.sync").text
    found = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))
    form = found | {"because": "it is back", "typed": "1"}
    # What died since is not meant; what was dealt with since is.
    app.ledger.submit(NewJob("crm.sync", "shop:ann:c-2:sync:v1"))
    app.ledger.settle([lease.dead("permanent") for lease in app.ledger.claim({"crm.sync": 1}, worker="w")])
    assert browser.post("/dead/apply", data=form | {"typed": "2"}).status_code == 422
    assert browser.post("/dead/apply", data=form | {"because": " "}).status_code == 422
    assert browser.post("/dead/apply", data=form).headers["location"] == "/sweeps/1"
    again = browser.post("/dead/apply", data=form)
    assert again.status_code in (409, 422)
    assert [(entry.action, entry.what["count"]) for entry in app.ledger.audit()] == [("dead.replay", 1)]
    assert [one.status for one in app.ledger.dead_letters()] == ["replaying", "pending"]


def test_a_body_has_its_limit(app: App) -> None:
    answer = client(app).post("/dead/apply", content=b"x" * (MOST + 1), headers={"content-type": "text/plain"})
    assert answer.status_code == 413


# ---- what browsers are told ----


def test_every_answer_carries_the_policy(app: App) -> None:
    browser = client(app)
    for path in ("/", "/static/console.css", "/api/status", "/nothing", "/health"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert browser.get("/dead").headers["cache-control"] == "no-store"
    assert browser.get("/static/console.js").headers["cache-control"] == "no-cache", "an upgrade brings its own"


def test_a_page_has_no_script_and_no_style_of_its_own(app: App) -> None:
    folder = Path(asgi.__code__.co_filename).parent / "templates"
    for path in folder.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\sstyle=|<style|\son\w+=|\|\s*safe\b|autoescape", text), path.name
        assert all("src=" in found for found in re.findall(r"<script[^>]*>", text)), path.name
        assert not re.search(r"(src|href)=\"https?:", text), f"{path.name}: nothing comes from outside"


def test_it_can_be_mounted_anywhere(app: App) -> None:
    api = FastAPI()
    api.mount("/ops/redrive", asgi(app, password=PASSWORD))
    browser = TestClient(api, base_url=HERE, follow_redirects=False)
    assert browser.get("/ops/redrive/dead?kind=a").headers["location"] == "/ops/redrive/login?next=%2Fdead%3Fkind%3Da"
    assert browser.get("/ops/redrive/login").status_code == 200
    form = {"name": "ann", "password": PASSWORD, "next": "/dead"}
    answer = browser.post("/ops/redrive/login", data=form)
    assert answer.headers["location"] == "/ops/redrive/dead"
    assert "Path=/ops/redrive" in answer.headers["set-cookie"]
    dead = browser.get("/ops/redrive/dead").text
    links = re.findall(r'(?:href|src|action)="(/[^"]*)"', dead)
    assert links
    assert all(link.startswith("/ops/redrive/") for link in links)
    assert browser.get("/ops/redrive/static/console.js").status_code == 200


# ---- when something is wrong ----


def test_what_is_not_there_is_said_so(app: App) -> None:
    browser = client(app)
    assert "There is no dead letter 99" in browser.get("/dead/99").text
    assert browser.get("/jobs/99").status_code == 404
    assert browser.get("/jobs/99999999999999999999").status_code == 422
    assert browser.get("/dead/plan?act=replay").status_code == 422, "nothing at all would mean everything"
    assert browser.get("/dead/plan?act=burn&ids=1").status_code == 422


def test_a_link_cannot_put_words_into_our_mouth(app: App) -> None:
    browser = client(app)
    for query in ("said=All+is+well", "said=All+is+well&ok=0", "said=All+is+well&ok=%C3%A9"):
        assert "All is well" not in browser.get(f"/keys?{query}").text


def test_no_nul_gets_through(app: App) -> None:
    browser = client(app)
    assert "Dead letter" in browser.get("/dead/1?x=%00").text
    assert 'value="perm"' in browser.get("/dead?reason=pe%00rm").text
    page = browser.get("/dead/plan?act=replay&ids=1").text
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)) | {"because": "it is\0 back"}
    assert browser.post("/dead/apply", data=form).status_code == 303
    assert app.ledger.audit()[0].because == "it is back"


def test_too_many_fields_are_no_error_of_ours(app: App) -> None:
    body = "&".join(f"x{number}=1" for number in range(20_001))
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert client(app).post("/dead/apply", content=body, headers=headers).status_code == 413


def test_a_ledger_that_is_away_is_a_page_too(tmp_path: Path) -> None:
    away = App(f"sqlite:///{tmp_path / 'nowhere' / 'ledger.db'}")
    browser = TestClient(asgi(away), base_url=HERE, client=("127.0.0.1", 1), raise_server_exceptions=False)
    answer = browser.get("/dead")
    assert answer.status_code == 503
    assert "Traceback" not in answer.text
    assert browser.get("/ready").status_code == 503
    assert browser.get("/health").status_code == 200
