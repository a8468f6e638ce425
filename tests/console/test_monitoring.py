"""Monitoring in a browser: live log records, failures and batches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from redrive import App
from redrive.console import application
from redrive.demo.live import write_history
from redrive.ledger import NewJob
from redrive.ops.operator import Operator
from tests.console.page_checks import low_contrast_texts, overflow_pixels, unlabelled_controls
from tests.console.sample_shop import add_problems, shop


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """A sample shop with problems, and a batch with given-up items."""
    with shop(f"sqlite:///{tmp_path_factory.mktemp('monitoring') / 'ledger.db'}") as sample:
        add_problems(sample)
        items = sample.items("tiles")
        items.increment_many([f"t-{number}" for number in range(5)])
        items.give_up_many({f"t-{number}": "corrupt blob" for number in range(3)})
        yield sample


WATCH = """() => {
  const word = document.querySelector("[data-live-word]");
  window.words = [];
  const note = () => window.words.push(word.textContent);
  new MutationObserver(note).observe(word, {childList: true, characterData: true, subtree: true});
}"""


def test_a_page_stays_live_when_its_stream_ends(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "STREAM_SECONDS", 0.3)
    streams: list[str] = []
    page.on("request", lambda request: streams.append(request.url) if request.resource_type == "eventsource" else None)
    page.goto("/journal")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.evaluate(WATCH)
    while len(streams) < 4:
        page.wait_for_timeout(100)
    assert "reconnecting" not in page.evaluate("window.words")


@pytest.mark.req("O-4", "J-3")
def test_log_records_appear_live(page: Page, app: App) -> None:
    page.goto("/journal?event=submitted")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    app.ledger.submit(NewJob("crm.sync", "crm:ann:brand-new:sync:v1"))
    expect(page.get_by_text("crm:ann:brand-new:sync:v1")).to_be_visible()


LINES = """() => [...document.querySelectorAll('td[data-label=Job] a')].map((link) => {
  link.textContent = '12345678';
  return link.getClientRects().length;
})"""
"""Number of lines of each job id."""


def test_job_ids_do_not_wrap_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto("/journal")
    assert set(page.evaluate(LINES)) == {1}
    assert overflow_pixels(page) == 0


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_charts_are_readable_with_a_table_behind_them(page: Page, app: App, width: int, scheme: Any) -> None:
    write_history(app.ledger)
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto("/")
    page.get_by_role("link", name="Activity in 24 hours").click()
    for title in ("Throughput", "Queue wait", "Run time", "Failures by cause"):
        expect(page.get_by_role("img", name=title)).to_be_visible()
    assert overflow_pixels(page) == 0
    assert low_contrast_texts(page) == []
    assert unlabelled_controls(page) == []
    assert (
        page.evaluate(
            "Math.min(...[...document.querySelectorAll('svg.chart text')].map((t) => t.getBoundingClientRect().height))"
        )
        >= 10
    )
    page.get_by_text("Charts as table").click()
    expect(page.get_by_role("columnheader", name="Queue wait p95")).to_be_visible()
    page.get_by_role("link", name="1 hour").click()
    expect(page.get_by_text("ended attempts per minute")).to_be_visible()
    page.get_by_label("Job type").select_option("crm.sync")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="Activity of crm.sync")).to_be_visible()


HIDDEN = """hidden => {
    Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_the_title_of_a_background_tab_counts_problems(page: Page) -> None:
    page.goto("/journal")
    expect(page).to_have_title("Log records · Redrive")
    page.evaluate(HIDDEN, True)
    expect(page).to_have_title(re.compile(r"^\(\d+\) Log records · Redrive$"))
    page.evaluate(HIDDEN, False)
    expect(page).to_have_title("Log records · Redrive")


@pytest.mark.req("O-4")
def test_the_overview_and_an_error_group_lead_to_a_dead_letter(page: Page) -> None:
    page.goto("/")
    page.get_by_role("row", name=re.compile("crm.sync")).get_by_role("link", name="17").first.click()
    page.wait_for_url("**/dead?kind=crm.sync")
    page.goto("/failures")
    page.get_by_role("link", name="TimeoutError: read timed out after # s").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("TimeoutError: read timed out after # s")
    expect(page.get_by_text(re.compile("rising"))).to_be_visible()
    page.get_by_role("row").nth(1).get_by_role("link").click()
    page.wait_for_url("**/dead/*")


@pytest.mark.req("O-3", "O-4", "O-5")
def test_given_up_items_are_reopened_with_a_reason(page: Page, app: App) -> None:
    page.goto("/batches")
    page.get_by_role("link", name="tiles").first.click()
    page.get_by_label("Error contains").fill("corrupt")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name="Reopen items …").click()
    expect(page.get_by_text("3 items")).to_be_visible()
    assert (overflow_pixels(page), unlabelled_controls(page), low_contrast_texts(page)) == (0, [], [])
    page.get_by_label("Because").fill("the blobs were fixed")
    page.get_by_role("button", name="Reopen 3").click()
    expect(page.get_by_role("status").first).to_have_text("3 items reopened.")
    ann = Operator(app, actor="ann")
    assert ann.batches.given_up() == []
    assert ann.audit.find(limit=1)[0].because == "the blobs were fixed"
