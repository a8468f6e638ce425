"""The actions of an operator, in a browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from redrive import App
from redrive.ops.operator import Operator
from tests.console.conftest import TIMEOUT_MILLISECONDS
from tests.console.page_checks import low_contrast_texts, overflow_pixels, unlabelled_controls
from tests.console.sample_shop import SECRET
from tests.console.serving import let_in


@pytest.mark.req("O-4", "O-2")
def test_replay_by_filter_with_a_canary_and_the_number_typed(page: Page, app: App) -> None:
    page.goto("/dead?by=cause")
    page.get_by_role("row", name=re.compile("CrmRejected")).get_by_role("link", name="Replay …").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Replay 3 dead letters?")
    button = page.get_by_role("button", name="Replay 3")
    expect(button).to_be_disabled()
    page.get_by_label("Because").fill("the address is there now")
    page.get_by_label("Canary size").fill("1")
    page.get_by_label("Type 3 to confirm").fill("2")
    expect(button).to_be_disabled()
    page.get_by_label("Type 3 to confirm").fill("3")
    button.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"Bulk operation \d+: replay"))
    expect(page.locator("#progress")).to_contain_text("1 of 3 replayed, 2 left")
    expect(page.locator("#progress")).to_contain_text("Waiting for the canary (1 job)")
    # A worker runs the canary's job, and the page updates automatically.
    number = int(page.url.rpartition("/")[2])
    (lease,) = app.ledger.claim({"crm.sync": 1}, worker="web-1:41")
    app.ledger.settle(lease.done())
    app.ledger.sweeps.step(number)
    expect(page.locator("#progress")).to_contain_text("3 of 3 replayed")
    expect(page.locator("#progress .state").first).to_contain_text("all replayed")
    expect(page.locator("#progress")).to_contain_text("in progress 2")
    for lease in app.ledger.claim({"crm.sync": 2}, worker="web-1:41"):
        app.ledger.settle(lease.done())
    expect(page.locator("#progress .state").first).to_have_text(re.compile("done$"))
    expect(page.locator("#outcomes tbody tr")).to_have_count(3)
    newest = app.ledger.audit(limit=1000)[-1]
    assert (newest.action, newest.because, newest.what["count"]) == ("dead.replay", "the address is there now", 3)


def test_selected_dead_letters_are_discarded(page: Page, app: App) -> None:
    page.goto("/dead?kind=crm.sync&error=Timeout")
    boxes = page.locator("tbody input[type=checkbox]")
    numbers = [int(boxes.nth(at).input_value()) for at in (0, 1)]
    boxes.nth(0).check()
    boxes.nth(1).check()
    expect(page.locator("[data-chosen]")).to_have_text("2")
    page.get_by_role("button", name="Discard selected").click()
    page.get_by_label("Because").fill("test orders")
    page.get_by_role("button", name="Discard 2", exact=True).click()
    expect(page.locator("#progress")).to_contain_text("2 of 2 discarded")
    assert {letter.status for letter in app.ledger.dead_letters(ids=numbers)} == {"discarded"}


def test_one_dead_letter_is_shown_and_replayed(page: Page) -> None:
    page.goto("/dead?kind=crm.sync&error=Timeout")
    page.locator("tbody tr a").first.click()
    expect(page.locator("main")).to_contain_text("secrets masked")
    expect(page.locator("pre.payload")).to_contain_text("[redacted]")
    expect(page.locator(".attempts li").first).to_contain_text("attempt")
    page.get_by_role("link", name="Replay …").click()
    page.get_by_label("Because").fill("one, to see")
    page.get_by_role("button", name="Replay 1", exact=True).click()
    expect(page.locator("#progress")).to_contain_text("1 of 1 replayed")


@pytest.mark.req("J-4")
def test_revealing_a_payload_is_recorded_in_the_audit_log(page: Page, app: App) -> None:
    page.goto("/jobs/1")
    assert SECRET not in page.content()
    page.get_by_text("Reveal secrets").click()
    page.get_by_label("Because").fill("the customer asks")
    page.get_by_role("button", name="Reveal").click()
    expect(page.locator("pre.payload")).to_contain_text(SECRET)
    newest = app.ledger.audit(limit=1000)[-1]
    assert (newest.action, newest.because, newest.what["job"]) == ("payload.reveal", "the customer asks", 1)
    page.goto("/jobs/1")
    assert SECRET not in page.content(), "once"


def test_a_sweep_is_paused_resumed_and_cancelled(page: Page, app: App) -> None:
    letters = [letter.id for letter in app.ledger.dead_letters(status="pending", error="Timeout", limit=3)]
    sweep = app.ledger.sweeps.begin("replay", letters, actor="ann", because="slowly", rate=0.001)
    page.goto("/sweeps")
    page.get_by_role("link", name=str(sweep.id), exact=True).click()
    for verb, state in (("Pause", "paused"), ("Resume", "running"), ("Cancel", "cancelled")):
        page.get_by_label("Because").fill("to see")
        with page.expect_navigation():  # the live update may change the buttons of the old page first
            page.get_by_role("button", name=verb).click()
        expect(page.get_by_role("button", name=verb)).to_have_count(0)
        expect(page.locator("#progress .state").first).to_contain_text(state)
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)


def test_a_finished_sweep_loses_its_buttons_without_a_reload(page: Page, app: App) -> None:
    letters = [letter.id for letter in app.ledger.dead_letters(status="pending", error="Timeout", limit=2)]
    sweep = app.ledger.sweeps.begin("discard", letters, actor="ann", because="slowly")
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_label("Because").fill("half a sen")
    ann = Operator(app, actor="ann")
    ann.sweeps.pause(sweep.id, because="from another tab")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    expect(page.get_by_label("Because")).to_have_value("half a sen")
    expect(page.get_by_label("Because")).to_be_focused()
    ann.sweeps.resume(sweep.id, because="from another tab")
    app.ledger.sweeps.step(sweep.id)
    expect(page.locator("#progress")).to_contain_text("2 of 2 discarded")
    for verb in ("Pause", "Resume", "Cancel"):
        expect(page.get_by_role("button", name=verb)).to_have_count(0)
    expect(page.locator("#commands .cli")).to_have_count(1)


def test_an_event_is_replayed(page: Page) -> None:
    page.goto("/events")
    page.get_by_role("link", name="ev-0").click()
    expect(page.locator("#handlers")).to_contain_text("dead")
    page.get_by_text("Replay the event").click()
    page.get_by_label("Because").fill("score is there now")
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_role("status")).to_contain_text("qscore: job")


def test_a_key_is_released(page: Page, app: App) -> None:
    page.goto("/keys")
    page.get_by_label("Exact key").fill("billing:ann:o-2:charge:v1")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("pre.payload")).to_contain_text("o-2")
    assert SECRET not in page.content()
    page.get_by_label("Because").fill("charged by hand")
    page.get_by_role("button", name="Release").click()
    expect(page.get_by_role("status")).to_contain_text("released")
    assert app.ledger.audit(limit=1000)[-1].because == "charged by hand"


@pytest.mark.req("O-4", "O-5")
def test_the_data_of_one_user_is_erased(page: Page, app: App) -> None:
    page.goto("/erase")
    page.get_by_label("User").fill("flo")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("row", name="Ended jobs")).to_contain_text("12")
    expect(page.locator(".cli code").last).to_have_text('redrive erase --user flo --because "..."')
    assert "flo" not in page.url, "URLs are logged"
    assert (overflow_pixels(page), unlabelled_controls(page), low_contrast_texts(page)) == (0, [], [])
    button = page.get_by_role("button", name="Erase 12 rows")
    expect(button).to_be_disabled()
    page.get_by_label("Because").fill("request 4711")
    page.get_by_label("Type 12 to confirm").fill("12")
    button.click()
    expect(page.get_by_role("status")).to_have_text("12 rows erased.")
    newest = app.ledger.audit(limit=1000)[-1]
    assert (newest.action, newest.because) == ("user.erase", "request 4711")
    assert "flo" not in str(newest.what)


def test_a_sweep_shows_that_no_worker_is_online(page: Page, app: App) -> None:
    letters = [letter.id for letter in app.ledger.dead_letters(status="pending", error="Timeout", limit=2)]
    sweep = app.ledger.sweeps.begin("replay", letters, actor="ann", because="slowly", rate=0.001)
    app.ledger.maintenance.heartbeat("web-1:41")
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#progress")).to_contain_text("running")
    expect(page.get_by_text("no worker online")).to_have_count(0)
    app.ledger.maintenance.deregister_worker("web-1:41")
    for path in (f"/sweeps/{sweep.id}", "/sweeps"):
        page.goto(path)
        expect(page.get_by_text("no worker online")).to_be_visible()
        expect(page.locator(".cli code").first).to_have_text("redrive work module:app")
    Operator(app, actor="ann").sweeps.cancel(sweep.id, because="seen enough")
    app.ledger.maintenance.heartbeat("web-1:41")


@pytest.mark.req("O-5")
def test_the_audit_log_is_verified(page: Page) -> None:
    page.goto("/audit")
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("status")).to_contain_text("intact")
    expect(page.get_by_role("status")).to_contain_text(re.compile(r"\d+:[0-9a-f]{64}"))


def test_keyboard_shortcuts_move_and_open_pages(page: Page) -> None:
    page.goto("/dead")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("tbody tr").nth(1)).to_have_class("at")
    page.keyboard.press("x")
    expect(page.locator("[data-chosen]")).to_have_text("1")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dead/*")
    _open_by_shortcut(page, "s", "Bulk operations")
    _open_by_shortcut(page, "d", "Dead letters")
    page.wait_for_load_state()
    page.keyboard.press("/")
    expect(page.locator(".filter [name=q]")).to_be_focused()


def _open_by_shortcut(page: Page, key: str, heading: str) -> None:
    """Press two keys, several times if needed. The page ignores a slow second key, and a busy machine is slow."""
    title = page.get_by_role("heading", level=1, name=heading, exact=True)
    for _ in range(20):
        page.wait_for_load_state()
        page.keyboard.press("g")
        page.keyboard.press(key)
        try:
            return expect(title).to_be_visible(timeout=5000)
        except AssertionError:
            continue
    raise AssertionError(f"g {key} does not lead to {heading}")


def test_a_live_update_keeps_the_selection(page: Page, app: App) -> None:
    page.goto("/dead?kind=crm.sync&error=Timeout")
    page.locator("tbody input[type=checkbox]").first.check()
    expect(page.locator("[data-chosen]")).to_have_text("1")
    page.evaluate("() => find('#dead').append('another')")  # the update replaces it
    page.evaluate("() => refresh()")
    expect(page.locator("#dead")).not_to_contain_text("another")
    expect(page.locator("[data-chosen]")).to_have_text("1")
    # An update waits while a button is pressed, so that no click is lost.
    link = page.locator("tbody tr a").first
    link.hover()
    page.mouse.down()
    page.evaluate("() => void (find('#dead').append('another'), refresh())")
    page.evaluate("() => fetch(location.href)")  # ends after the first fetch
    assert "another" in (page.locator("#dead").text_content() or "")
    page.mouse.up()
    page.wait_for_url("**/dead/*")


def test_the_theme_is_stored_and_a_command_is_copied(page: Page) -> None:
    page.goto("/jobs")
    page.get_by_role("button", name="auto").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.evaluate("() => void (window.setTimeout = () => 0)")  # keep the message, which is shown only briefly
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()


def test_the_url_holds_the_filter(page: Page) -> None:
    page.goto("/jobs")
    page.get_by_label("State").select_option("retry_wait")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/jobs?**state=retry_wait**")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("tbody tr a").first.click()
    expect(page.locator("time[data-countdown]")).to_have_text(re.compile(r"^in \d+ min \d+ s$"))


def test_actions_work_without_javascript(browser: Browser, console: str, app: App) -> None:
    context = browser.new_context(base_url=console, java_script_enabled=False)
    let_in(context, console)
    context.set_default_timeout(TIMEOUT_MILLISECONDS)
    page = context.new_page()
    page.goto("/dead/plan?act=discard&kind=receipts.send&limit=1")
    page.get_by_label("Because").fill("no script here")
    page.get_by_label("Type 1 to confirm").fill("7")
    page.get_by_role("button", name="Discard 1").click()
    expect(page.get_by_role("alert")).to_contain_text("nothing was changed")
    page.get_by_label("Type 1 to confirm").fill("1")
    page.get_by_role("button", name="Discard 1").click()
    expect(page.locator("#progress")).to_contain_text("1 of 1 discarded")
    context.close()
    assert app.ledger.audit(limit=1000)[-1].because == "no script here"
