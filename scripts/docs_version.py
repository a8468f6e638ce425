"""MkDocs hook: write the version of pyproject.toml into the footer of every page."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def version() -> str:
    """Return the version of the package."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return found


def on_config(config: Any) -> Any:
    """Set the footer. MkDocs calls this once for each build."""
    config["copyright"] = f"Redrive {version()}"
    return config
