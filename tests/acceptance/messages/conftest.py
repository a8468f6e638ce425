"""Fixtures: one zygote, one database and one Redis."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.crash.conftest import postgres_once, url, zygote
from tests.zygote import Zygote

from .market import Market

__all__ = ["postgres_once", "url", "zygote"]


@pytest.fixture
def market(zygote: Zygote, url: str, redis_url: str, tmp_path: Path) -> Market:
    """Consumers on an empty ledger, and an empty stream."""
    return Market(zygote, url, redis_url, tmp_path)
