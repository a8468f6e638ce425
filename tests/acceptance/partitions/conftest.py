"""Shared by these tests: one zygote, one database, and a store on a disk or on S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.partitions.queries import PartitionQueries
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made
from tests.ledgers import sqlite_ledger
from tests.servers.buckets import options
from tests.zygote import Zygote

from .lake import LOADED, Lake

__all__ = ["postgres_ledger", "postgres_made"]


@pytest.fixture(scope="package")
def zygote() -> Iterator[Zygote]:
    """The zygote that forks the processes."""
    with Zygote(*LOADED) as started:
        yield started


@pytest.fixture(params=["sqlite-local", "postgres-s3"])
def lake(request: pytest.FixtureRequest, zygote: Zygote, tmp_path: Path) -> Lake:
    """An empty ledger with a planned backfill, and an empty store."""
    database, _, place = str(request.param).partition("-")
    url = sqlite_ledger(tmp_path) if database == "sqlite" else request.getfixturevalue("postgres_ledger")
    store: dict[str, Any] = {"type": "local", "options": {"root": str(tmp_path / "raw")}}
    if place == "s3":
        bucket = request.getfixturevalue("s3_bucket")
        store = {"type": "s3", "options": {**options(request.getfixturevalue("s3_url")), "bucket": bucket}}
    found = Lake(zygote, url, store, tmp_path)
    found.fill()
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app with a store on a disk. At the end all counts must balance."""
    url = sqlite_ledger(tmp_path) if request.param == "sqlite" else request.getfixturevalue("postgres_ledger")
    with App(url, stores={"raw": {"type": "local", "options": {"root": str(tmp_path / "raw")}}}) as made:
        yield made
        assert PartitionQueries(made.ledger).imbalance() == []
