"""A browser, and a console to look at with it.

A module has its own: Playwright keeps an event loop running in the main thread, and other tests want theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, expect, sync_playwright

from redrive import App
from tests.console.serving import let_in, served
from tests.console.world import in_trouble, shop

PATIENCE = 120_000
"""Milliseconds for what should be there at once, on a machine that may be very busy."""
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """A shop in trouble. A module's tests share it: act on what is yours."""
    with shop(f"sqlite:///{tmp_path_factory.mktemp('console') / 'ledger.db'}") as made:
        in_trouble(made)
        yield made


@pytest.fixture(scope="module")
def console(app: App) -> Iterator[str]:
    """Its console's address."""
    with served(app) as url:
        yield url


@pytest.fixture(scope="module")
def browser(chromium_options: dict[str, Any]) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(**chromium_options)
        yield made
        made.close()


@pytest.fixture(scope="module")
def tab(browser: Browser, console: str) -> Iterator[Page]:
    """One for a module: to open a new one costs more than most tests."""
    context = browser.new_context(base_url=console)
    context.set_default_timeout(PATIENCE)
    let_in(context, console)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(tab: Page, console: str) -> Iterator[Page]:
    """The console in a browser of 1280 by 900. What it complains of fails the test."""
    complaints: list[str] = []

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def asked(dialog: Dialog) -> None:
        complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def failed(error: Exception) -> None:
        complaints.append(str(error))

    tab.context.clear_cookies()
    let_in(tab.context, console)
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.on("console", said)
    tab.on("dialog", asked)
    tab.on("pageerror", failed)
    yield tab
    tab.goto("about:blank")  # nothing of this one's is still on its way when the next one begins
    tab.remove_listener("console", said)
    tab.remove_listener("dialog", asked)
    tab.remove_listener("pageerror", failed)
    assert complaints == []
