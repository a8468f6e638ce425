"""A Django database with a ledger, on SQLite and on Postgres, and a backend on it."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.django_project import HAS_TASKS, django_databases, django_settings
from tests.servers.fixtures import SERVERS

if not HAS_TASKS and sys.version_info < (3, 12):
    collect_ignore_glob = ["test_[!v]*.py"]  # all but test_version.py

BACKEND = "redrive.django.Backend"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of Django's default database, migrated by `manage.py migrate`. The tests of a module share it."""
    from django.core.management import call_command

    with ExitStack() as stack:
        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('django') / 'shop.sqlite3'}"
        else:
            url = stack.enter_context(new_database(request.config.stash[SERVERS].address("Postgres")))
        stack.enter_context(django_databases(default=django_settings(url)))
        with use_backend():
            call_command("migrate", verbosity=0, run_syncdb=True)
        yield url


@contextmanager
def new_database(server: str) -> Iterator[str]:
    """Create a database on the server, for the block."""
    name = f"django_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    yield urlsplit(server)._replace(path=f"/{name}").geturl()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def use_backend(queues: list[str] | None = None, **options: Any) -> Any:
    """Return a block in which `default` is a backend of Redrive, which knows the tasks of the tests."""
    from tests.unit.django.sample_tasks import backend_settings

    return backend_settings(["default", "mail"] if queues is None else queues, options)


@pytest.fixture(autouse=True)
def nothing_is_left_in_the_process() -> None:
    """The project's App and its sink stay to the end of the process."""


@pytest.fixture
def backend(database: str) -> Iterator[None]:
    """A backend whose tasks are attempted up to three times, without waits."""
    from redrive import RetryPolicy

    with use_backend(retry=RetryPolicy(3, backoff_base=0, backoff_max=0, jitter=0)):
        yield


@pytest.fixture
def worker(backend: None) -> Iterator[Any]:
    """A worker of the backend."""
    from redrive.django import get_app

    with get_app().worker(drain=5) as worker:
        yield worker
