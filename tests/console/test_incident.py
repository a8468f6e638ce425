"""The steps of docs/how-to/operate/incident.md in a browser: every bold text is on the page."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from redrive import App, retry
from redrive.core.outage import Parking
from tests.console.conftest import TIMEOUT_MILLISECONDS
from tests.console.serving import let_in, serve_console

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "operate" / "incident.md"
ORDERS = 12


class Mail:
    """A mail service that can be down."""

    def __init__(self) -> None:
        self.down = True
        self.sent: list[str] = []

    def send(self, order: str) -> None:
        if self.down:
            raise ConnectionError("no answer from smtp.example.com")
        self.sent.append(order)


@pytest.fixture(scope="module")
def mail() -> Mail:
    return Mail()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, mail: Mail) -> Iterator[App]:
    """A shop whose mail service is down, after all attempts of the worker."""
    url = f"sqlite:///{tmp_path_factory.mktemp('incident') / 'ledger.db'}"
    with App(url, migrate=True, parking=Parking.disabled()) as shop:

        @shop.command("receipts.send", key="shop:{user}:{order_id}:receipt:v1", retry=retry(max_attempts=2, backoff_base=0.01))
        def send_receipt(order_id: str, user: str) -> None:
            mail.send(order_id)

        with shop.worker(threads=2):
            for number in range(ORDERS):
                send_receipt.submit(f"o-{number}", user="ann")
            while shop.ledger.counts()["receipts.send"].dead < ORDERS:
                time.sleep(0.01)
            yield shop


@pytest.fixture
def console(app: App) -> Iterator[str]:
    with serve_console(app) as url:
        yield url


def chapters() -> list[tuple[str, list[str]]]:
    """Return the headings of the page, and the bold texts under each."""
    parts = re.split(r"^## (\d\. .+)$", DOCUMENT.read_text(encoding="utf-8").partition("## Defaults")[0], flags=re.MULTILINE)
    return [(title, re.findall(r"\*\*(.+?)\*\*", text)) for title, text in zip(parts[1::2], parts[2::2], strict=True)]


def overview(page: Page, _mail: Mail) -> Iterator[None]:
    page.goto("/")
    yield


def failures(page: Page, _mail: Mail) -> Iterator[None]:
    page.get_by_role("link", name=re.compile("receipts.send: .* new dead letters in the last hour")).click()
    page.wait_for_url("**/failures?kind=receipts.send")
    yield


def failure(page: Page, _mail: Mail) -> Iterator[None]:
    page.get_by_role("link", name=re.compile("ConnectionError: no answer from")).click()
    expect(page.get_by_text("first seen")).to_be_visible()
    yield
    page.get_by_role("link", name="Open sample job").click()
    page.wait_for_url("**/jobs/*")
    expect(page.get_by_text("ConnectionError: no answer from smtp.example.com").first).to_be_visible()
    yield


def plan_replay(page: Page, mail: Mail) -> Iterator[None]:
    mail.down = False
    page.goto("/failures?kind=receipts.send")
    page.get_by_role("link", name=re.compile("ConnectionError: no answer from")).click()
    expect(page.get_by_text("first seen")).to_be_visible()
    yield
    page.get_by_role("link", name=re.compile("Replay or discard")).click()
    page.wait_for_url("**/dead?**")
    yield
    page.get_by_role("link", name=re.compile("^Replay all matching")).first.click()
    page.wait_for_url("**/dead/plan?**")
    page.get_by_label("Because").fill("INC-42: mail is back")
    page.get_by_label(re.compile("Canary")).fill("3")
    page.get_by_label(re.compile(f"Type {ORDERS}")).fill(str(ORDERS))
    yield


def replay(page: Page, mail: Mail) -> Iterator[None]:
    page.get_by_role("button", name=f"Replay {ORDERS}").click()
    page.wait_for_url("**/sweeps/1")
    expect(page.locator(".state").get_by_text(f"done {ORDERS}")).to_be_visible()
    assert sorted(mail.sent) == sorted(f"o-{number}" for number in range(ORDERS))
    yield


def check_overview(page: Page, _mail: Mail) -> Iterator[None]:
    page.goto("/")
    expect(page.get_by_text("No problems found")).to_be_visible()
    yield


def audit_log(page: Page, _mail: Mail) -> Iterator[None]:
    page.get_by_role("link", name="Audit log", exact=True).click()
    expect(page.get_by_text("INC-42: mail is back").first).to_be_visible()
    yield


STEPS: tuple[Callable[[Page, Mail], Iterator[None]], ...] = (
    overview,
    failures,
    failure,
    plan_replay,
    replay,
    check_overview,
    audit_log,
)


@pytest.mark.req("O-3", "O-4", "O-5")
def test_every_step_of_the_incident_guide_is_on_a_page(browser: Browser, console: str, mail: Mail) -> None:
    context = browser.new_context(base_url=console, viewport={"width": 1280, "height": 900})
    let_in(context, console)
    context.set_default_timeout(TIMEOUT_MILLISECONDS)
    page = context.new_page()
    try:
        for (title, bold), step in zip(chapters(), STEPS, strict=True):
            html = "".join(page.content() for _ in step(page, mail))
            text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html)).casefold()
            missing = [words for words in bold if words.casefold() not in text]
            assert missing == [], f"{title}: {missing}"
    finally:
        context.close()
