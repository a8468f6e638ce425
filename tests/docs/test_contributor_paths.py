"""Files that the pages for contributors name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/concepts/glossary.md",
    *(f"docs/adr/{path.name}" for path in (ROOT / "docs/adr").glob("*.md")),
)
PATH = re.compile(r"`((?:[a-z_]+/)+[a-z_]+(?:\.py|/))`")


@pytest.mark.parametrize("page", PAGES)
def test_named_files_and_folders_exist(page: str) -> None:
    named = PATH.findall((ROOT / page).read_text(encoding="utf-8"))
    missing = [path for path in named if not any((base / path).exists() for base in (ROOT, ROOT / "src/redrive", ROOT / "src"))]
    assert missing == []


def test_the_glossary_names_a_file_for_most_terms() -> None:
    text = (ROOT / "docs/concepts/glossary.md").read_text(encoding="utf-8").partition("## Inside Redrive")[2]
    assert len(PATH.findall(text)) >= 25
