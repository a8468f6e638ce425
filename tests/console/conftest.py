"""A browser, and a console to look at with it.

A module has its own: Playwright keeps an event loop running in the main thread, and other tests want theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from redrive import App
from tests.console.serving import served
from tests.console.world import in_trouble, shop

PATIENCE = 15_000
"""Milliseconds for what should be there at once."""


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


@pytest.fixture
def page(browser: Browser, console: str) -> Iterator[Page]:
    """A page of the console's browser. What it complains of fails the test."""
    context = browser.new_context(base_url=console, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    made = context.new_page()
    complaints: list[str] = []
    made.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("dialog", lambda dialog: (complaints.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    yield made
    context.close()
    assert complaints == []
