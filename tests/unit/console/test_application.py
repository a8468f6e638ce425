"""Every response of the application: security headers, mounting and errors."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi import FastAPI
from fastapi.testclient import TestClient

from redrive import App
from redrive.console import asgi
from redrive.ledger import NewJob

from .browser import HERE, PASSWORD, client, let_in

# ---- headers and mounting ----


def test_every_response_has_the_security_headers(app: App) -> None:
    browser = client(app)
    for path in ("/", "/static/console.css", "/api/status", "/nothing", "/health"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert browser.get("/dead").headers["cache-control"] == "no-store"
    assert browser.get("/static/console.js").headers["cache-control"] == "no-cache", "an upgrade brings its own files"


def test_templates_have_no_inline_scripts_or_styles(app: App) -> None:
    folder = Path(asgi.__code__.co_filename).parent / "templates"
    for path in folder.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\sstyle=|<style|\son\w+=|\|\s*safe\b|autoescape", text), path.name
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text)), path.name
        assert not re.search(r"(src|href)=\"https?:", text), f"{path.name}: loads a file of another site"


def test_the_console_can_be_mounted_at_any_path(app: App) -> None:
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


# ---- errors ----


def test_a_missing_row_is_a_404_page(app: App) -> None:
    browser = client(app)
    assert "Dead letter 99 does not exist" in browser.get("/dead/99").text
    assert browser.get("/jobs/99").status_code == 404
    assert browser.get("/jobs/99999999999999999999").status_code == 422
    assert browser.get("/dead/plan?act=replay").status_code == 422, "an empty selection means all"
    assert browser.get("/dead/plan?act=burn&ids=1").status_code == 422


def test_error_groups_can_be_replayed_and_discarded(app: App) -> None:
    page = client(app).get("/dead?by=cause").text
    assert ("/dead/plan?act=replay&amp;kind=" in page, "/dead/plan?act=discard&amp;kind=" in page) == (True, True)


def test_a_job_whose_failure_did_not_count_is_queued_for_its_next_attempt(app: App) -> None:
    app.ledger.submit(NewJob("mail", "a"))
    (lease,) = app.ledger.claim({"mail": 1}, worker="w1")
    app.ledger.settle(lease.again(600, error="503", reason="parked", free=True))
    page = client(app).get(f"/jobs/{lease.job_id}").text
    assert ("<dt>Next attempt</dt>" in page, "irst attempt" in page) == (True, False)


def test_a_link_cannot_forge_a_message(app: App) -> None:
    browser = client(app)
    for query in ("said=All+is+well", "said=All+is+well&ok=0", "said=All+is+well&ok=%C3%A9"):
        assert "All is well" not in browser.get(f"/keys?{query}").text


def test_nul_characters_are_removed(app: App) -> None:
    browser = client(app)
    assert "Dead letter" in browser.get("/dead/1?x=%00").text
    assert 'value="perm"' in browser.get("/dead?reason=pe%00rm").text
    page = browser.get("/dead/plan?act=replay&ids=1").text
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)) | {"because": "it is\0 back"}
    assert browser.post("/dead/apply", data=form).status_code == 303
    assert app.ledger.audit()[0].because == "it is back"


def test_a_form_with_too_many_fields_is_a_413(app: App) -> None:
    body = "&".join(f"x{number}=1" for number in range(20_001))
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert client(app).post("/dead/apply", content=body, headers=headers).status_code == 413


def test_an_unreachable_ledger_is_a_503_page(tmp_path: Path) -> None:
    away = App(f"sqlite:///{tmp_path / 'nowhere' / 'ledger.db'}")
    console = asgi(away)
    browser = TestClient(
        console, base_url=HERE, client=("127.0.0.1", 1), raise_server_exceptions=False, cookies=let_in(console, HERE)
    )
    answer = browser.get("/dead")
    assert answer.status_code == 503
    assert "Traceback" not in answer.text
    assert browser.get("/ready").status_code == 503
    assert browser.get("/health").status_code == 200
