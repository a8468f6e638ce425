"""Signing in, as a person does; and a console that may only be looked at."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from redrive import App
from tests.console.conftest import PATIENCE
from tests.console.looks import faint, sideways, unlabelled
from tests.console.serving import served

PASSWORD, LOOKING = "correct horse", "only looking"


@pytest.mark.req("O-4")
def test_a_person_signs_in_acts_under_their_name_and_leaves(browser: Browser, app: App) -> None:
    with served(app, password=PASSWORD, viewer_password=LOOKING) as url:
        context = browser.new_context(base_url=url, viewport={"width": 400, "height": 800})
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto("/dead?kind=crm.sync")
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        assert (sideways(page), unlabelled(page), faint(page)) == (0, [], [])
        page.get_by_label("Name").fill("ann")
        page.get_by_label("Password").fill("a guess of mine")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_have_text("Wrong password.")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters")
        assert page.url.endswith("/dead?kind=crm.sync"), "where they wanted to go"
        page.goto("/dead/plan?act=discard&ids=5")
        page.get_by_label("Because").fill("a test order")
        page.get_by_role("button", name="Discard 1").click()
        expect(page.locator("#progress")).to_contain_text("ann")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")

        page.get_by_label("Name").fill("ben")
        page.get_by_label("Password").fill(LOOKING)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).not_to_have_text("Sign in")  # else the next would end it half-way
        page.goto("/dead/6")
        expect(page.locator("header")).to_contain_text("read-only")
        expect(page.get_by_role("link", name="Replay")).to_have_count(0)
        expect(page.get_by_text("Reveal secrets")).to_have_count(0)
        context.close()
    newest = app.ledger.audit(limit=1000)[-1]
    assert (newest.actor, newest.because) == ("ann", "a test order")
