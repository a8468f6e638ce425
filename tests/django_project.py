"""Django for tests. Importing this module configures it for the process. Tests change its settings for a block."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
import psycopg.conninfo
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

HAS_TASKS = django.VERSION >= (6, 0)
AUTH = ("django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions")


if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        INSTALLED_APPS=[*AUTH, *(["redrive.django"] if HAS_TASKS else [])],
        MIDDLEWARE=[],
        MIGRATION_MODULES={name.rpartition(".")[2]: None for name in AUTH},  # their tables are created at once, which is faster
        ROOT_URLCONF=(),
        SECRET_KEY="x",
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        TASKS={"default": {"BACKEND": "django.tasks.backends.dummy.DummyBackend", "QUEUES": []}},
        USE_TZ=True,
    )
    django.setup(set_prefix=False)


def django_settings(url: str) -> dict[str, Any]:
    """Return the entry of a database in Django's DATABASES."""
    if url.startswith("sqlite"):
        name = url.removeprefix("sqlite:///")
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": {"transaction_mode": "IMMEDIATE"}}
    parts = psycopg.conninfo.conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    known = {name: parts[key] for name, key in names.items() if parts.get(key) is not None}
    return {"ENGINE": "django.db.backends.postgresql", **known}


@contextmanager
def django_databases(**entries: dict[str, Any]) -> Iterator[None]:
    """Give Django these databases by alias, in all threads, for the block."""
    before = dict(connections.settings)

    def forget() -> None:
        for alias in entries:
            if hasattr(connections._connections, alias):
                connections[alias].close()
                if connections[alias].connection is not None:
                    connections[alias].connection.close()  # Django keeps a database in memory open
                del connections[alias]

    forget()
    connections.settings.update(connections.configure_settings({"default": {}, **entries}))
    try:
        yield
    finally:
        forget()
        asyncio.run(sync_to_async(forget)())  # the thread of async code has connections of its own
        connections.settings.clear()
        connections.settings.update(before)
