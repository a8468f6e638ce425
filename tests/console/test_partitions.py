"""Partitions in a browser: the heat map, one day, one partition, selections and plans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta

import pytest
from playwright.sync_api import Locator, Page, expect

from redrive import App
from redrive.console.render.heat_map import NO_PARTITIONS, DatasetRow, DayCell, day_cell, draw_cells
from redrive.ops.operator import Operator
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.control.verdicts import VerdictWriter
from redrive.partitions.model import Decision, Verdict
from redrive.partitions.retry_schedule import DatasetLimits
from tests.console.page_checks import low_contrast_texts, overflow_pixels, unlabelled_controls

TODAY = date(2026, 1, 31)
CUSTOMERS = tuple(f"c-{number}" for number in range(4))
BAD = {("c-1", TODAY), ("c-2", TODAY - timedelta(days=3))}
NASTY = "<script>alert('xss')</script>"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """Two datasets of ten days and four customers. Two partitions of orders are rejected, one of them finally."""
    with App(f"sqlite:///{tmp_path_factory.mktemp('heat') / 'ledger.db'}", migrate=True) as made:
        terms = [DatasetLimits("crm", name, concurrency=100) for name in ("orders", "visits")]
        control, authority = ControlPlane(made.ledger, terms), VerdictWriter(made.ledger, terms)
        for one in terms:
            grid = Grid(one.source, one.query_name, CUSTOMERS, TODAY - timedelta(days=9), TODAY)
            control.requeue_next(control.backfill(grid, actor="ann", because="history").id)
        for lease in control.claim(1000, worker="w1"):
            of = lease.partition
            bad = of.query_name == "orders" and (of.customer_id, of.logical_date) in BAD
            final = bad and of.logical_date == TODAY
            check = {"name": "row_count", "ok": not bad, "value": 48 if bad else 420, "limit": 120}
            said: Decision = "rejected" if bad else "accepted"
            message = f"48 rows {NASTY}" if bad else None
            verdict = Verdict(
                lease.run_id, said, reason="row_count" if bad else None, message=message, checks=[check], record_count=420,
                final=final, manifest="m",
            )  # fmt: skip
            authority.apply([verdict])
        yield made


RANGE = f"since={TODAY - timedelta(days=9)}&until={TODAY}"


@pytest.mark.req("O-4")
def test_the_heat_map_shows_the_stored_counts(page: Page, app: App) -> None:
    for scheme, width in (("dark", 1600), ("light", 400)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"/partitions?{RANGE}")
        assert (overflow_pixels(page), unlabelled_controls(page), low_contrast_texts(page)) == (0, [], [])
        assert page.locator("tr[data-query=orders] td").count() == 10
        assert page.locator("tr[data-query=visits] td.s").count() == 10
        assert page.locator("tr[data-query=orders] td.s").count() == 8
        assert page.locator("tr[data-query=orders] td.t").count() == 1
        assert page.locator("tr[data-query=orders] td.f").get_attribute("title") == (
            f"{TODAY - timedelta(days=3)}: 3 accepted, 1 failed; 1 in lane backfill"
        )
    counted = Operator(app, actor="ann").partitions.calendar(TODAY - timedelta(days=9), TODAY)
    assert {row.query: dict(row.counts) for row in counted.rows}["orders"] == {"success": 38, "failed": 1, "terminal": 1}


COVERED = """(selector) => {
  const span = document.querySelector(selector);
  const box = span.getBoundingClientRect();
  return [1, box.width / 2, box.width - 1].filter((x) => document.elementFromPoint(box.x + x, box.y + box.height / 2) !== span);
}"""
"""Points of an element that another one covers. By selector: a live update may replace the element at any time."""


@pytest.mark.parametrize("width", [390, 1280])
def test_the_number_of_problems_stays_visible(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"/partitions?since={TODAY - timedelta(days=120)}&until={TODAY}")
    page.wait_for_function("() => document.querySelector('#heat').scrollLeft > 0")  # the newest days are visible
    assert page.evaluate(COVERED, "table.heat thead .ends span:last-child") == []
    assert page.evaluate(COVERED, "tr[data-query=orders] .bad") == []


@pytest.mark.req("O-4", "O-1")
def test_a_day_leads_to_a_partition_with_its_explanation(page: Page) -> None:
    page.goto(f"/partitions?{RANGE}")
    page.locator("tr[data-query=orders] td.f").click()
    page.wait_for_url("**/partitions/day?**")
    page.get_by_role("link", name="c-2").click()
    drawer = page.get_by_role("complementary", name="Partition details")
    expect(drawer.get_by_role("heading", name="Scheduling")).to_be_visible()
    expect(drawer.get_by_text(f"row_count: 48 rows {NASTY}")).to_be_visible()
    expect(drawer.get_by_text("limit 120")).to_be_visible()
    expect(drawer.get_by_text(re.compile("attempts left"))).to_be_visible()
    assert (overflow_pixels(page), unlabelled_controls(page), low_contrast_texts(page)) == (0, [], [])


def _cell(page: Page, query: str, day: date) -> Locator:
    place = (day - (TODAY - timedelta(days=9))).days
    return page.locator(f"tr[data-query={query}] td").nth(place)


@pytest.mark.req("O-2", "O-4")
def test_days_are_selected_by_dragging_and_become_a_plan(page: Page) -> None:
    page.goto(f"/partitions?{RANGE}")
    first, last = TODAY - timedelta(days=4), TODAY - timedelta(days=1)
    _cell(page, "orders", last).hover()
    page.mouse.down()
    _cell(page, "orders", last - timedelta(days=1)).hover()
    _cell(page, "visits", first).hover()  # the row in which it began counts
    page.mouse.up()
    bar = page.get_by_role("region", name="Selected days")
    expect(bar).to_contain_text("4 days of crm/orders")
    expect(bar).to_contain_text("15 accepted, 1 failed")
    assert f"of_source=crm&of_query=orders&from={first}&to={last}" in page.url
    assert page.locator("td.k").count() == 4
    expect(bar.locator("code")).to_have_text(
        f'redrive state retry --source crm --query-name orders --since {first} --until {last} --because "..."'
    )
    assert (overflow_pixels(page), unlabelled_controls(page), low_contrast_texts(page)) == (0, [], [])
    page.reload()
    assert page.locator("tr[data-query=orders] td.k").count() == 4, "the address holds it"
    # A third day more, by Shift and a click.
    _cell(page, "orders", TODAY).click(modifiers=["Shift"])
    expect(bar).to_contain_text("5 days of crm/orders")
    page.go_back()
    expect(bar).to_contain_text("4 days of crm/orders")
    bar.get_by_role("link", name="Reprocess …").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Reprocess 15 partitions?")


@pytest.mark.req("O-4")
def test_days_are_selected_by_keys_and_a_date_selects_all_datasets(page: Page) -> None:
    page.goto(f"/partitions?{RANGE}")
    heat = page.get_by_role("group", name=re.compile("Heat map"))
    heat.focus()
    for key in ("ArrowLeft", "ArrowLeft", "Shift+ArrowLeft", "Shift+ArrowLeft"):
        page.keyboard.press(key)
    expect(page.locator("tr[data-query=orders] td.k")).to_have_count(3)
    page.evaluate("() => refresh()")  # the page is updated meanwhile
    expect(page.locator("tr[data-query=orders] td.k")).to_have_count(3)
    page.keyboard.press("Enter")
    bar = page.get_by_role("region", name="Selected days")
    expect(bar).to_contain_text(f"3 days of crm/orders {TODAY - timedelta(days=3)} … {TODAY - timedelta(days=1)}")
    expect(bar.get_by_role("link", name="Retry …")).to_be_focused()
    bar.get_by_role("link", name="Clear").click()
    expect(bar).to_have_count(0)
    page.locator(f"th[data-day='{TODAY}']").click()
    expect(bar).to_contain_text("1 day of all datasets shown")
    expect(bar).to_contain_text("7 accepted, 1 gave up")


@pytest.mark.req("O-4")
def test_a_day_shows_queued_partitions_and_rejected_refreshes(page: Page, app: App) -> None:
    terms = [DatasetLimits("erp", "stock")]
    control, authority = ControlPlane(app.ledger, terms), VerdictWriter(app.ledger, terms)
    days = [TODAY - timedelta(days=back) for back in range(3)]
    control.requeue_next(control.backfill(Grid("erp", "stock", ("c-1",), days[-1], days[0]), actor="ann", because="history").id)
    for lease in control.claim(10, worker="w1"):
        authority.apply([Verdict(lease.run_id, "accepted", record_count=1, manifest="m")])
    ann = Operator(app, actor="ann")
    ann.apply(
        ann.partitions.reprocess(ann.partitions.selection("erp/stock", since=days[1], until=days[0])), because="new columns"
    )
    (lease,) = control.claim(1, worker="w1")
    authority.apply([Verdict(lease.run_id, "rejected", reason="row_count", manifest="m", final=True)])
    page.goto(f"/partitions?source=erp&{RANGE}")
    hatched, queued = page.locator("td.r"), page.locator("td:is(.lr, .lf, .lb)")
    expect(hatched).to_have_count(1)
    expect(hatched).to_have_css("background-image", re.compile("gradient"))  # repeatedly, because a live page may be replaced
    expect(queued).to_have_count(1)
    assert re.search(r"1 in lane \w+$", queued.get_attribute("title") or "")
    assert (overflow_pixels(page), unlabelled_controls(page), low_contrast_texts(page)) == (0, [], [])


@pytest.mark.req("O-2", "O-4")
def test_a_selection_becomes_a_plan_and_a_sweep(page: Page, app: App) -> None:
    page.goto(f"/partitions/day?source=crm&query=orders&status=failed&{RANGE}")
    page.get_by_role("link", name="Retry …").first.click()
    page.wait_for_url("**/partitions/plan?**")
    expect(page.get_by_role("heading", name="Retry 1 partition?")).to_be_visible()
    expect(page.get_by_text("gave up", exact=True).first).to_be_visible()  # it is unchanged
    page.get_by_label("Because").fill("the source was fixed")
    page.get_by_role("button", name="Retry 1", exact=True).click()
    page.wait_for_url("**/sweeps/*")
    (decided, *_) = Operator(app, actor="ann").audit.find(limit=1)
    assert decided.because == "the source was fixed"


@pytest.mark.req("O-4", "O-5")
def test_a_partition_is_paused_with_a_reason(page: Page, app: App) -> None:
    key = f"crm/c-1/orders/{TODAY}"
    page.goto(f"/partitions/day?source=crm&query=orders&key={key}")
    drawer = page.get_by_role("complementary", name="Partition details")
    drawer.locator("select[name=act]").select_option("pause")
    drawer.locator("form[action$=steer] input[name=because]").fill("it is odd")
    drawer.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("status").first).to_contain_text(f"{key}: pause")
    assert Operator(app, actor="ann").partitions.inspect(limit=100)
    assert [one.because for one in Operator(app, actor="ann").audit.find(limit=1)] == ["it is odd"]


def test_a_day_cell_shows_the_worst_status_and_its_share() -> None:
    assert day_cell(None) is NO_PARTITIONS
    assert day_cell({"success": 3}).css == "s"
    assert day_cell({"success": 3}, None, 2) == DayCell("m", "3 accepted, 2 never requested")
    assert day_cell({"success": 3, "failed": 1}, None, 2).css == "f n3"
    assert day_cell({"success": 99, "failed": 1}).css == "f n1"
    assert day_cell({"success": 9, "failed": 1}) == day_cell({"success": 9, "failed": 1})
    assert day_cell({"success": 9, "failed": 1}).css == "f n2"
    assert day_cell({"pending": 1, "terminal": 1}).css == "t n3"
    assert day_cell({"success": 1, "refresh_failed": 1}).title == "1 accepted, 1 newer run rejected"


def test_cells_are_drawn_with_their_day_only_if_they_have_a_title() -> None:
    cells = (NO_PARTITIONS, day_cell({"success": 3}), day_cell({"failed": 2}))
    days = [TODAY - timedelta(days=back) for back in (2, 1, 0)]
    drawn = draw_cells(DatasetRow("crm", "orders", {}, cells), days)
    assert drawn == f'<td><td class="s"><td class="f n3" title="{TODAY}: 2 failed">'
