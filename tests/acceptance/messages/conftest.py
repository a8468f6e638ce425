"""Fixtures: one zygote, one database and one Redis."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.acceptance.crash.conftest import postgres_once, url, zygote
from tests.zygote import Zygote

from .market import Market
from .stalls import RedisStall

__all__ = ["postgres_once", "url", "zygote"]


@pytest.fixture
def market(zygote: Zygote, url: str, redis_url: str, tmp_path: Path) -> Market:
    """Consumers on an empty ledger, and an empty stream."""
    return Market(zygote, url, RedisStall(redis_url, f"shop.{secrets.token_hex(4)}"), tmp_path)
