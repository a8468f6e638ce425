"""A ledger with one dead letter, a copy of it for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import App
from redrive.ledger import NewJob


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with one dead letter. It is created once, because creating its tables is slow."""
    path = tmp_path_factory.mktemp("gate") / "ledger.db"
    with App(f"sqlite:///{path}") as app:
        app.ledger.submit(NewJob("crm.sync", "shop:ann:c-1:sync:v1", b'{"password": "hunter2"}'))
        app.ledger.settle([lease.dead("permanent") for lease in app.ledger.claim({"crm.sync": 1}, worker="w")])
    return path


@pytest.fixture
def app(template: Path, tmp_path: Path) -> Iterator[App]:
    with App(f"sqlite:///{shutil.copy(template, tmp_path / 'ledger.db')}") as copied:
        yield copied
