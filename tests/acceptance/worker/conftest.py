"""Fixtures of the worker tests: one zygote and one database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.crash.conftest import postgres_once, url, zygote
from tests.zygote import Zygote

from .shift import Shift

__all__ = ["postgres_once", "url", "zygote"]


@pytest.fixture
def shift(zygote: Zygote, url: str, tmp_path: Path) -> Shift:
    """Workers on an empty ledger."""
    return Shift(zygote, url, tmp_path)
