"""The built site: it names the version, loads nothing from outside, and can be searched from disk."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two pages, built with the settings of mkdocs.yml."""
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    docs, target = tmp_path / "docs", tmp_path / "site"
    shutil.copytree(ROOT / "docs" / "assets", docs / "assets")
    (docs / "deep").mkdir()
    (docs / "index.md").write_text("# Home\n\nNothing here.\n")
    (docs / "architecture.md").write_text("# Architecture\n\nWhy a breaker opens.\n")  # mkdocs.yml: not_in_nav
    (docs / "deep" / "page.md").write_text("# Circuits\n\nA breaker opens at a failure rate.\n")
    options: dict[str, Any] = {"docs_dir": str(docs), "site_dir": str(target), "nav": ["index.md", "deep/page.md"]}
    config = load_config(str(ROOT / "mkdocs.yml"), plugins=["search", "offline"], **options)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return target


def test_every_page_names_the_version(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= 2
    assert all(f"Redrive {VERSION}" in page.read_text(encoding="utf-8") for page in pages)


def test_a_site_on_disk_is_searched_and_loads_nothing_from_outside(site: Path, chromium_options: dict[str, Any]) -> None:
    for page in site.rglob("*.html"):
        assert not re.findall(r'(?:src|<link[^>]* href)="https?://[^"]*"', page.read_text(encoding="utf-8"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium_options)
        tab = browser.new_page()
        requests: list[str] = []
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto((site / "deep" / "page.html").as_uri())
        ready = "document.querySelector('.md-search-result__meta').textContent.includes('Type to start')"
        tab.click(".md-search__input")  # the index is loaded at the first click
        tab.wait_for_function(ready)
        tab.keyboard.type("breaker")
        result = tab.wait_for_selector(".md-search-result__article")
        assert result is not None
        assert "Circuits" in result.inner_text()
        assert tab.locator(".md-search-result__article").count() == 1, "papers for contributors are not searched"
        assert all(url.startswith("file:") for url in requests)
        browser.close()
