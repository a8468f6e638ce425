"""The walk of docs/how-to/jobs/living-jobs.md in a browser, next to a real worker: every bold text is on the page."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from redrive import App
from tests.conformance.worker.world import Refreshes
from tests.console.conftest import TIMEOUT_MILLISECONDS
from tests.console.serving import let_in, serve_console

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "jobs" / "living-jobs.md"
WRONG = 6
DAY = 86_400


class Crm:
    """Counts the customers that were synchronised, and the calls at the same time."""

    def __init__(self) -> None:
        self.customers: list[str] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def sync(self, customer: str) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.05)
        with self._lock:
            self._now -= 1
            self.customers.append(customer)


class Shop:
    """An app with scheduled jobs for the wrong customers, and its worker."""

    def __init__(self, app: App, refreshes: Refreshes) -> None:
        self.app, self.crm, self.reports = app, Crm(), list[str]()
        self.refreshes = refreshes

        @app.command("crm.sync", key="shop:{user}:{customer}:sync:v1", concurrency=8)
        def sync(customer: str, user: str) -> None:
            self.crm.sync(customer)

        @app.command("reports.send", key="shop:{user}:{name}:report:v1")
        def send(name: str, user: str) -> None:
            self.reports.append(name)

        self.sync = sync
        for number in range(WRONG):
            sync.using(delay=DAY).submit(f"wrong-{number}", user="import")
        send.using(delay=DAY).submit("r-7", user="cleo")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}", migrate=True) as app:
        shop = Shop(app, Refreshes(monkeypatch))
        with app.worker(threads=4):
            yield shop


def chapters() -> list[tuple[str, list[str]]]:
    """Return the headings of the walk, and the bold texts under each."""
    walk = DOCUMENT.read_text(encoding="utf-8").partition("## Walk through an incident")[2].partition("\n## ")[0]
    parts = re.split(r"^### (\d\. .+)$", walk, flags=re.MULTILINE)
    return [(title, re.findall(r"\*\*(.+?)\*\*", text)) for title, text in zip(parts[1::2], parts[2::2], strict=True)]


def search(page: Page, words: str) -> None:
    field = page.get_by_placeholder("Search jobs")
    field.fill(words)
    field.press("Enter")
    page.wait_for_url("**/search?**")


def find(page: Page, _shop: Shop) -> Iterator[None]:
    page.goto("/")
    search(page, "user:import state:queued")
    expect(page.get_by_role("heading", name=f"Jobs ({WRONG})")).to_be_visible()
    yield


def cancel(page: Page, shop: Shop) -> Iterator[None]:
    yield
    page.get_by_role("link", name=re.compile("^Cancel all matching")).click()
    page.wait_for_url("**/jobs/plan?**")
    button = page.get_by_role("button", name=f"Cancel ({WRONG})")
    page.get_by_label("Because").fill("INC-42: wrong customers")
    expect(button).to_be_disabled()
    page.get_by_label(f"Type {WRONG} to confirm").fill(str(WRONG))
    yield
    button.click()
    page.wait_for_url("**/sweeps/1")
    expect(page.locator("#progress")).to_contain_text(f"{WRONG} of {WRONG} cancelled")
    assert shop.app.ledger.counts()["crm.sync"].cancelled == WRONG
    yield


def pause(page: Page, shop: Shop) -> Iterator[None]:
    page.get_by_role("link", name="Pauses and limits").click()
    form = page.locator("form", has=page.get_by_role("button", name="Pause", exact=True))
    form.get_by_label("Name").fill("crm.sync")
    form.get_by_label(re.compile("^Until")).fill("2h")
    form.get_by_label("Because").fill("INC-42: the CRM is overloaded")
    form.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#pauses")).to_contain_text("INC-42: the CRM is overloaded")
    yield
    shop.refreshes.wait()  # the worker obeys
    jobs = [shop.sync.submit(f"c-{number}", user="ann") for number in range(5)]
    page.goto(f"/jobs/{jobs[0].id}")
    expect(page.locator("#job")).to_contain_text("crm.sync is paused by")
    yield


def run_now(page: Page, shop: Shop) -> Iterator[None]:
    search(page, "key:shop:cleo:r-7:report:v1")
    page.locator("tbody tr a").first.click()
    page.wait_for_url("**/jobs/*")
    yield
    page.get_by_role("link", name=re.compile("^Run now")).click()
    page.get_by_label("Because").fill("INC-42: the customer waits")
    yield
    page.get_by_role("button", name="Run now").click()
    page.wait_for_url("**/sweeps/2")
    page.locator("#outcomes tbody tr a").first.click()
    expect(page.locator("#state")).to_contain_text("done")
    assert (shop.reports, shop.crm.customers) == (["r-7"], []), "the other job type is paused"
    yield


def limit(page: Page, _shop: Shop) -> Iterator[None]:
    page.get_by_role("link", name="Pauses and limits").click()
    form = page.locator("form", has=page.get_by_role("button", name="Set limit"))
    form.get_by_label("Job type").fill("crm.sync")
    form.get_by_label("Concurrency").fill("1")
    form.get_by_label("Because").fill("INC-42: the CRM is slow")
    form.get_by_role("button", name="Set limit").click()
    row = page.locator("#limits tbody tr")
    expect(row).to_contain_text("INC-42: the CRM is slow")
    assert [row.locator("td").nth(place).inner_text() for place in (1, 2)] == ["1", "8"]
    yield


def resume(page: Page, shop: Shop) -> Iterator[None]:
    row = page.locator("#pauses tbody tr", has_text="crm.sync")
    row.get_by_label("Because").fill("INC-42: the CRM is back")
    row.get_by_role("button", name="Resume").click()
    expect(page.locator("#pauses")).to_contain_text("Nothing is paused by hand")
    end = time.monotonic() + TIMEOUT_MILLISECONDS / 1000
    while len(shop.crm.customers) < 5:
        assert time.monotonic() < end, shop.crm.customers
        time.sleep(0.01)
    assert sorted(shop.crm.customers) == [f"c-{number}" for number in range(5)], "no wrong customer"
    assert shop.crm.most == 1, "one at a time"
    yield


def reset(page: Page, _shop: Shop) -> Iterator[None]:
    row = page.locator("#limits tbody tr", has_text="crm.sync")
    row.get_by_label("Because").fill("INC-42: the CRM is fast again")
    yield
    row.get_by_role("button", name="Reset").click()
    expect(page.get_by_role("status")).to_contain_text("has the limits in the code again")
    yield


def audit_log(page: Page, shop: Shop) -> Iterator[None]:
    page.get_by_role("link", name="Audit log", exact=True).click()
    expect(page.locator("#audit tbody tr")).to_have_count(6)
    entries = shop.app.ledger.audit()
    acts = ["job.cancel", "pause", "job.run_now", "limits.set", "resume", "limits.reset"]
    assert [entry.action for entry in entries] == acts
    assert all(entry.because.startswith("INC-42: ") for entry in entries)
    yield


STEPS: tuple[Callable[[Page, Shop], Iterator[None]], ...] = (
    find,
    cancel,
    pause,
    run_now,
    limit,
    resume,
    reset,
    audit_log,
)


@pytest.mark.req("Q-1", "Q-2", "Q-3", "Q-4", "Q-5")
def test_every_step_of_the_walk_is_on_a_page(browser: Browser, shop: Shop) -> None:
    with serve_console(shop.app) as url:
        context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 900})
        let_in(context, url)
        context.set_default_timeout(TIMEOUT_MILLISECONDS)
        page = context.new_page()
        try:
            for (title, bold), step in zip(chapters(), STEPS, strict=True):
                html = "".join(page.content() for _ in step(page, shop))
                text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html)).casefold()
                missing = [words for words in bold if words.casefold() not in text]
                assert missing == [], f"{title}: {missing}"
        finally:
            context.close()
