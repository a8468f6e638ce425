"""Login in a browser: an operator acts under a name, and a viewer cannot act."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from redrive import App
from tests.console.conftest import TIMEOUT_MILLISECONDS
from tests.console.page_checks import low_contrast_texts, overflow_pixels, unlabelled_controls
from tests.console.serving import serve_console

PASSWORD, VIEWER_PASSWORD = "correct horse", "only looking"


@pytest.mark.req("O-4")
def test_an_operator_and_a_viewer_sign_in_and_out(browser: Browser, app: App) -> None:
    with serve_console(app, password=PASSWORD, viewer_password=VIEWER_PASSWORD) as url:
        context = browser.new_context(base_url=url, viewport={"width": 400, "height": 800})
        context.set_default_timeout(TIMEOUT_MILLISECONDS)
        page = context.new_page()
        page.goto("/dead?kind=crm.sync")
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        assert (overflow_pixels(page), unlabelled_controls(page), low_contrast_texts(page)) == (0, [], [])
        page.get_by_label("Name").fill("ann")
        page.get_by_label("Password").fill("a guess of mine")
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_role("alert")).to_have_text("Wrong password.")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters")
        assert page.url.endswith("/dead?kind=crm.sync"), "the login returns to the requested page"
        page.goto("/dead/plan?act=discard&ids=5")
        page.get_by_label("Because").fill("a test order")
        page.get_by_role("button", name="Discard 1", exact=True).click()
        expect(page.locator("#progress")).to_contain_text("ann")
        # Exact, because the button to sign out everywhere is hidden only once the style sheet has loaded.
        page.get_by_role("button", name="Sign out", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")

        page.get_by_label("Name").fill("ben")
        page.get_by_label("Password").fill(VIEWER_PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_role("heading", level=1)).not_to_have_text("Sign in")  # wait for the login
        page.goto("/dead/6")
        expect(page.locator("header")).to_contain_text("read-only")
        expect(page.get_by_role("link", name="Replay")).to_have_count(0)
        expect(page.get_by_text("Reveal secrets")).to_have_count(0)
        context.close()
    newest = app.ledger.audit(limit=1000)[-1]
    assert (newest.actor, newest.because) == ("ann", "a test order")
