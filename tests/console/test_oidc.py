"""Sign-in with a real OpenID Connect provider, in the browser and over HTTP."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, expect

from redrive import App
from redrive.console import OIDC, asgi
from redrive.ops import Operator
from tests.console.conftest import TIMEOUT_MILLISECONDS
from tests.console.serving import serve_console
from tests.servers.oidc import CLIENT_ID, CLIENT_SECRET, sign_in

HERE = "http://127.0.0.1:8321"


def provider(issuer: str) -> OIDC:
    return OIDC(issuer, CLIENT_ID, CLIENT_SECRET, roles={"sre": "operator", "support": "viewer"})


@pytest.mark.req("X-4")
def test_a_person_signs_in_with_the_provider_and_acts(browser: Browser, app: App, oidc_issuer: str) -> None:
    with serve_console(app, oidc=provider(oidc_issuer)) as url:
        context = browser.new_context(base_url=url)
        context.set_default_timeout(TIMEOUT_MILLISECONDS)
        page = context.new_page()
        page.goto("/dead?kind=crm.sync")
        page.locator("input[name=login]").fill("ann+sre")
        page.locator("input[name=password]").fill("any")
        page.get_by_role("button").click()
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters")
        assert page.url == f"{url}/dead?kind=crm.sync", "the sign-in returns to the requested page"
        page.goto("/dead/plan?act=discard&ids=7")
        page.get_by_label("Because").fill("a test order")
        page.get_by_role("button", name="Discard 1", exact=True).click()
        expect(page.locator("#progress")).to_contain_text("ann")
        page.get_by_role("button", name="Sign out", exact=True).click()
        expect(page.get_by_role("status")).to_contain_text("You are signed out.")
        expect(page.get_by_role("link", name="Sign out of the identity provider too")).to_be_visible()
        context.close()
    (entry, *_) = Operator(app, actor="test").audit.find(action="dead.discard")
    assert (entry.actor, entry.via) == ("ann", "oidc ann+sre")


@pytest.mark.req("X-4")
def test_groups_of_the_provider_decide_and_sessions_are_revoked(app: App, oidc_issuer: str) -> None:
    console = TestClient(asgi(app, oidc=provider(oidc_issuer)), base_url=HERE, follow_redirects=False)

    def enter(account: str, *, abort: bool = False) -> int:
        console.cookies.clear()
        start = console.get("/login/oidc?next=//evil.example").headers["location"]
        callback = sign_in(start, account, callback=HERE, abort=abort)
        answer = console.get(callback.removeprefix(HERE))
        if answer.status_code == 200:
            assert 'content="0; url=/"' in answer.text, "another site is no target"
            again = console.get(callback.removeprefix(HERE))
            assert again.status_code == 400, "a callback works once"
        return int(answer.status_code)

    assert enter("eve") == 403
    assert enter("eve", abort=True) == 403
    assert console.get("/").headers["location"] == "/login/oidc"
    assert console.get("/api/status").status_code == 401
    assert enter("sam+support") == 200
    page = console.get("/dead").text
    assert (">sam<" in page, "read-only" in page) == (True, True)
    operator = Operator(app, actor="root")
    (session,) = operator.sessions.find(user="sam")
    assert (session.role, session.via) == ("viewer", "oidc sam+support")
    csrf = re.search(r'name="csrf" content="([^"]+)"', page)
    assert csrf is not None
    assert console.post("/logout", data={"csrf": "x"}).status_code == 403
    assert console.post("/logout", data={"csrf": csrf[1]}).status_code == 303
    assert operator.sessions.find(user="sam") == []
