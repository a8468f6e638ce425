"""Django in the process of a test run. It can be configured once, so all tests share these settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.apps import apps
from django.conf import settings
from django.db import connections

if not settings.configured:
    settings.configure(
        ROOT_URLCONF=(),
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="x",
        MIDDLEWARE=[],
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        USE_TZ=True,
    )
apps.populate(settings.INSTALLED_APPS)


def django_settings(url: str) -> dict[str, Any]:
    """Return the entry of a database in Django's DATABASES."""
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    parts = psycopg.conninfo.conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    known = {name: parts[key] for name, key in names.items() if parts.get(key) is not None}
    return {"ENGINE": "django.db.backends.postgresql", **known}


@contextmanager
def django_database(url: str, alias: str) -> Iterator[Any]:
    """Give Django a database of this alias, for the block."""
    before = dict(connections.settings)
    connections.settings.update(connections.configure_settings({"default": {}, alias: django_settings(url)}))
    if hasattr(connections._connections, alias):
        del connections[alias]
    try:
        yield connections[alias]
    finally:
        connections[alias].close()
        del connections[alias]
        connections.settings.clear()
        connections.settings.update(before)
