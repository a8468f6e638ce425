"""MkDocs hooks that add the version to the footer, and exclude contributor pages from the search."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def version() -> str:
    """Return the version of the package."""
    value: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return value


def on_config(config: Any) -> Any:
    """Set the footer. MkDocs calls this once for each build."""
    config["copyright"] = f"Redrive {version()}"
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Keep pages that are not in the navigation out of the search. MkDocs calls this for each page."""
    if page.file.inclusion.is_not_in_nav():
        page.meta["search"] = {"exclude": True}
    return markdown
