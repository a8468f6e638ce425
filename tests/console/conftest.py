"""A browser and a console for each module.

Playwright keeps an event loop running in the main thread, which other tests must not inherit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, expect, sync_playwright

from redrive import App
from tests.console.sample_shop import add_problems, shop
from tests.console.serving import let_in, serve_console

TIMEOUT_MILLISECONDS = 120_000
"""Long, because the machine may be very busy."""
expect.set_options(timeout=TIMEOUT_MILLISECONDS)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """A sample shop with problems, shared by the tests of a module."""
    with shop(f"sqlite:///{tmp_path_factory.mktemp('console') / 'ledger.db'}") as sample:
        add_problems(sample)
        yield sample


@pytest.fixture(scope="module")
def console(app: App) -> Iterator[str]:
    """The URL of its console."""
    with serve_console(app) as url:
        yield url


@pytest.fixture(scope="module")
def browser(chromium_options: dict[str, Any]) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(**chromium_options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def tab(browser: Browser, console: str) -> Iterator[Page]:
    """One tab for a module, because opening a tab takes longer than most tests."""
    context = browser.new_context(base_url=console)
    context.set_default_timeout(TIMEOUT_MILLISECONDS)
    let_in(context, console)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(tab: Page, console: str) -> Iterator[Page]:
    """The console in a window of 1280 by 900. Errors of the browser fail the test."""
    complaints: list[str] = []

    def on_message(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def on_dialog(dialog: Dialog) -> None:
        complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def on_error(error: Exception) -> None:
        complaints.append(str(error))

    tab.context.clear_cookies()
    let_in(tab.context, console)
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.on("console", on_message)
    tab.on("dialog", on_dialog)
    tab.on("pageerror", on_error)
    yield tab
    tab.goto("about:blank")  # end pending requests before the next test
    tab.remove_listener("console", on_message)
    tab.remove_listener("dialog", on_dialog)
    tab.remove_listener("pageerror", on_error)
    assert complaints == []
