"""Fixtures: the shop in each framework, behind its server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps
from django.db import connections

from redrive import App
from tests.acceptance.idempotency.served import Client
from tests.django_project import django_databases, django_settings
from tests.ledgers import sqlite_ledger

from .shop import FRAMEWORKS, Shops, World


@pytest.fixture(scope="module")
def django_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tables of Django's users."""
    file = tmp_path_factory.mktemp("django") / "users.db"
    with django_databases(default=django_settings(f"sqlite:///{file}")):
        with connections["default"].schema_editor() as editor:
            for model in apps.get_models():
                editor.create_model(model)
        yield


@pytest.fixture(scope="module", params=FRAMEWORKS)
def shops(request: pytest.FixtureRequest, django_users: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    """The shops of each framework."""
    folder: Path = tmp_path_factory.mktemp("ledger")
    with App(sqlite_ledger(folder)) as app:
        shops = Shops(FRAMEWORKS[request.param], app)
        yield shops
        shops.close()


@pytest.fixture
def world(shops: Shops) -> Iterator[World]:
    shops.world.reset()
    yield shops.world
    shops.world.go.set()


@pytest.fixture
def app(shops: Shops) -> App:
    return shops.app


@pytest.fixture
def client(shops: Shops, world: World) -> Client:
    return shops.serve()


@pytest.fixture
def key() -> str:
    """A new key, as the draft defines its form."""
    return f'"{uuid.uuid4()}"'
