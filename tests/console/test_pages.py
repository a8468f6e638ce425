"""Every page, in a real browser: opened wide and narrow, dark and light; nothing from a payload is ever executed."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from redrive.console.render.navigation import NAV
from tests.console.looks import faint, sideways, unlabelled
from tests.console.world import NASTY, SECRET

ODD_KEY = f"billing:{NASTY.replace('%', '%25').replace(':', '%3A')}:o-3:charge:v1"
PAGES = [page.path for _, pages in NAV for page in pages] + [
    "/dead?by=cause", "/dead?kind=crm.sync&error=Timeout", "/dead?kind=nothing", "/dead/3", "/dead/18", "/dead/19",
    "/dead/plan?act=replay&kind=crm.sync", "/dead/plan?act=discard&ids=3&ids=4", "/sweeps/1", "/jobs?state=retry_wait", "/jobs/1",
    "/jobs/18", "/jobs/28", "/events/show?" + urlencode({"id": "ev-1"}), "/events/show?" + urlencode({"id": NASTY}),
    "/keys/show?key=billing:ann:o-1:charge:v1", "/keys/show?" + urlencode({"key": ODD_KEY}),
    "/audit?verify=1",
]  # fmt: skip


@pytest.mark.req("O-4", "J-4")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path[:40])
def test_a_page_is_whole_wide_and_narrow_dark_and_light(page: Page, path: str) -> None:
    complaints: list[str] = []
    for scheme, width in (("dark", 1600), ("light", 400)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 900})
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 200
        expect(page.locator("h1")).to_be_visible()
        text = page.content()
        assert SECRET not in text
        assert "<script>alert" not in text
        assert page.evaluate("() => document.querySelectorAll('main img, main script').length") == 0
        complaints += [f"{width}: sideways by {by}" for by in [sideways(page)] if by > 0]
        complaints += [f"{width}: no name: {each}" for each in unlabelled(page)]
        complaints += [f"{scheme}: faint: {each}" for each in faint(page)]
    assert complaints == []
