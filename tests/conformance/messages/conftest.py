"""Fixtures: a ledger on a SQLite file and on Postgres, and real brokers."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from redrive.ledger import Ledger, open_ledger
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made  # noqa: F401  # the same databases, created once
from tests.conformance.messages.brokers import BROKERS, Broker
from tests.ledgers import sqlite_ledger
from tests.servers.nats_admin import NatsAdmin
from tests.servers.rabbit_admin import RabbitAdmin


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty ledger that other processes can open."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_ledger")
        return found
    return sqlite_ledger(tmp_path)


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url) as opened:
        yield opened


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as opened:
        yield opened


@pytest.fixture
def stream() -> str:
    """A new name of a stream."""
    return f"shop.events.{secrets.token_hex(4)}"


@pytest.fixture
def nats_admin(nats_url: str) -> Iterator[NatsAdmin]:
    with NatsAdmin(nats_url) as opened:
        yield opened


@pytest.fixture
def rabbit_admin(rabbitmq: dict[str, Any]) -> Iterator[RabbitAdmin]:
    with RabbitAdmin(rabbitmq["url"]) as opened:
        yield opened


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each engine, with an empty stream."""
    return BROKERS[request.param](request)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests of all engines on Postgres only in full: a source does not know the ledger's database. Redis runs on both."""
    if os.environ.get("REDRIVE_FULL"):
        return
    left_out = [item for item in items if _is_postgres_of_another_engine(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_postgres_of_another_engine(item: pytest.Item) -> bool:
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return params.get("url") == "postgres" and params.get("broker", "redis") != "redis"
