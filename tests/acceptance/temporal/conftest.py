"""An app whose commands run on a real Temporal server, with its ledger on SQLite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import App, Temporal
from tests.ledgers import sqlite_ledger


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_ledger(tmp_path)


@pytest.fixture
def engine(temporal_address: str) -> Temporal:
    return Temporal(temporal_address, task_queue=f"test-{uuid.uuid4().hex[:12]}", heartbeat=2)


@pytest.fixture
def app(url: str, engine: Temporal) -> Iterator[App]:
    with App(url, engine=engine) as opened:
        yield opened
        assert opened.ledger.imbalance() == []
