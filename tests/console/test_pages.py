"""Every page in a browser: wide and narrow, dark and light, without scripts from payloads."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from redrive.console.view import NAVIGATION
from tests.console.page_checks import low_contrast_texts, overflow_pixels, unlabelled_controls
from tests.console.sample_shop import NASTY, SECRET

ODD_KEY = f"billing:{NASTY.replace('%', '%25').replace(':', '%3A')}:o-3:charge:v1"
PAGES = [page.path for _, pages in NAVIGATION for page in pages] + [
    "/dead?by=cause", "/dead?kind=crm.sync&error=Timeout", "/dead?kind=nothing", "/dead/3", "/dead/18", "/dead/19",
    "/dead/plan?act=replay&kind=crm.sync", "/dead/plan?act=discard&ids=3&ids=4", "/sweeps/1", "/jobs?state=retry_wait", "/jobs/1",
    "/jobs/18", "/jobs/28", "/events/show?" + urlencode({"id": "ev-1"}), "/events/show?" + urlencode({"id": NASTY}),
    "/keys/show?key=billing:ann:o-1:charge:v1", "/keys/show?" + urlencode({"key": ODD_KEY}),
    "/audit?verify=1",
]  # fmt: skip


@pytest.mark.req("O-4", "J-4")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path[:40])
def test_a_page_fits_is_labelled_and_has_contrast(page: Page, path: str) -> None:
    problems: list[str] = []
    for scheme, width in (("dark", 1600), ("light", 400)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 900})
        response = page.goto(path)
        assert response is not None
        assert response.status == 200
        expect(page.locator("h1")).to_be_visible()
        text = page.content()
        assert SECRET not in text
        assert "<script>alert" not in text
        assert page.evaluate("() => document.querySelectorAll('main img, main script').length") == 0
        problems += [f"{width}: too wide by {pixels}" for pixels in [overflow_pixels(page)] if pixels > 0]
        problems += [f"{width}: no name: {each}" for each in unlabelled_controls(page)]
        problems += [f"{scheme}: low contrast: {each}" for each in low_contrast_texts(page)]
    assert problems == []
