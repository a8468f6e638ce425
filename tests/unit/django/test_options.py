"""The settings of a backend: misspelt names, wrong values, and what `manage.py check` says about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connections
from django.tasks import default_task_backend, task, task_backends
from django.tasks.exceptions import InvalidTaskBackend
from django.test import override_settings

from redrive.django import Backend, get_app
from redrive.django.database import DjangoDatabase
from redrive.django.project import find_project
from redrive.errors import SchemaMismatch
from redrive.ledger.db.address import FORMS
from tests.django_project import django_databases, django_settings
from tests.unit.django.conftest import use_backend
from tests.unit.django.sample_tasks import add

pytestmark = pytest.mark.req("X-2")

MEMORY = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
MYSQL = {"ENGINE": "django.db.backends.dummy"}
OPTIONS = "TASKS['default']['OPTIONS']"
LEDGER_FIX = "pass its address as 'ledger' in OPTIONS, such as 'postgresql://user@host/jobs'"
TASKS_FORM = "{'shop.tasks.send_receipt': {'concurrency': 4}}"


def problems(**params: Any) -> list[str]:
    with override_settings(TASKS={"default": {"BACKEND": "redrive.django.Backend", **params}}):
        return [message.msg for message in default_task_backend.check()]


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"OPTION": {}}, "TASKS['default']: unknown name 'OPTION'; did you mean 'OPTIONS'?"),
        ({"OPTIONS": []}, f"{OPTIONS} must be a dict, not list"),
        ({"QUEUES": "mail"}, "TASKS['default']['QUEUES'] must be a list of names such as ['default'], not 'mail'"),
        ({"QUEUES": [1]}, "TASKS['default']['QUEUES'] must be a list of names such as ['default'], not [1]"),
        ({"OPTIONS": {"retires": 3}}, f"{OPTIONS}: unknown name 'retires'; did you mean 'retry'?"),
        ({"OPTIONS": {"retry": 3}}, f"{OPTIONS}['retry'] must be retry(...) or a RetryPolicy, not int: 3"),
        ({"OPTIONS": {"database": "shop"}}, f"{OPTIONS}['database']: DATABASES has no 'shop'; use 'default', 'old'"),
        (
            {"OPTIONS": {"database": "old"}},
            f"{OPTIONS}['database']: DATABASES['old'] is on unknown, and a ledger needs PostgreSQL or SQLite; {LEDGER_FIX}",
        ),
        (
            {"OPTIONS": {"ledger": "mysql://shop"}},
            f"{OPTIONS}['ledger']: a ledger's address is {FORMS}, not 'mysql://shop'",
        ),
        (
            {"OPTIONS": {"ledger": "sqlite:///jobs.db", "database": "default"}},
            f"{OPTIONS}: 'database' and 'ledger' exclude each other; remove one of them",
        ),
        (
            {"OPTIONS": {"tasks": ["shop.tasks.send"]}},
            f"{OPTIONS}['tasks'] must be a dict of dicts, such as {TASKS_FORM}, not ['shop.tasks.send']",
        ),
        (
            {"OPTIONS": {"tasks": {"shop.tasks.send": {"retries": 3}}}},
            f"{OPTIONS}['tasks']['shop.tasks.send']: unknown name 'retries'; did you mean 'retry'?",
        ),
    ],
)
def test_a_wrong_setting_is_an_error_of_check_and_of_each_task(params: dict[str, Any], problem: str) -> None:
    with django_databases(default=MEMORY, old=MYSQL):
        assert problems(**params) == [problem]
        backend = {"BACKEND": "redrive.django.Backend", **params}
        with override_settings(TASKS={"default": backend}):
            with pytest.raises(InvalidTaskBackend) as raised:
                task(add.func)
            assert str(raised.value) == problem
            for use in (get_app, lambda: default_task_backend.get_result("1")):
                with pytest.raises(InvalidTaskBackend):
                    use()
        assert Backend("default", {}).checked_options.problems == ()  # nothing is kept


def test_the_check_of_a_good_project_finds_nothing(tmp_path: Path) -> None:
    with django_databases(default=django_settings(f"sqlite:///{tmp_path / 'shop.sqlite3'}")):
        assert problems() == []
        with use_backend():
            call_command("check")


def test_the_check_reports_missing_settings_around_the_backend(tmp_path: Path) -> None:
    with (
        django_databases(default=MEMORY),
        override_settings(INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes"]),
    ):
        missing, mode = problems()
    assert missing == ("INSTALLED_APPS: 'redrive.django' is missing, so that there are no migrations and no worker command")
    assert mode.startswith("DATABASES['default']: a transaction that reads before it writes fails with 'database is locked'")
    assert problems(OPTIONS={"ledger": f"sqlite:///{tmp_path / 'jobs.db'}"}) == []


def test_an_app_is_of_a_backend_of_redrive() -> None:
    dummy = {"BACKEND": "django.tasks.backends.dummy.DummyBackend"}
    with django_databases(default=MEMORY):
        with override_settings(TASKS={"default": dummy}):
            with pytest.raises(InvalidTaskBackend) as raised:
                get_app()
            assert str(raised.value) == (
                "TASKS['default'] has the backend django.tasks.backends.dummy.DummyBackend; set it to 'redrive.django.Backend'"
            )
        with override_settings(TASKS={"default": dummy, "jobs": {"BACKEND": "redrive.django.Backend"}}):
            assert get_app() is get_app("jobs")
            assert isinstance(task_backends["jobs"], Backend)
            with pytest.raises(InvalidTaskBackend, match="doesn't exist"):
                get_app("unknown")


def test_options_of_an_app_are_passed_on(tmp_path: Path) -> None:
    seen: list[Any] = []
    with use_backend(ledger=f"sqlite:///{tmp_path / 'jobs.db'}", keep=60, stores={}, journal=[seen.append]):
        app = get_app()
        assert app.url == f"sqlite:///{tmp_path / 'jobs.db'}"
        assert len(app._unsubscribe) == 1


def test_a_misspelt_task_is_an_error_of_the_worker() -> None:
    own = {"tests.unit.django.sample_tasks.ad": {"concurrency": 1}}
    with django_databases(default=MEMORY), use_backend(tasks=own), pytest.raises(InvalidTaskBackend) as raised:
        get_app().kinds()
    start = "TASKS['default']['OPTIONS']['tasks']: unknown task 'tests.unit.django.sample_tasks.ad'; tasks: "
    assert str(raised.value).startswith(f"{start}tests.unit.django.sample_tasks.add, ")


# --- The database


def test_a_database_without_tables_names_the_command(tmp_path: Path) -> None:
    with django_databases(shop=django_settings(f"sqlite:///{tmp_path / 'shop.sqlite3'}"), default=MEMORY):
        with use_backend(database="shop"):
            with pytest.raises(SchemaMismatch) as raised:
                add.enqueue()
            assert str(raised.value) == "DATABASES['shop'] has no ledger; run `manage.py migrate --database shop`"
            with pytest.raises(
                CommandError, match="DATABASES\\['shop'\\] has no ledger; run `manage.py migrate --database shop`"
            ):
                call_command("redrive_worker")
        with connections["shop"].cursor() as cursor:
            cursor.execute("CREATE TABLE redrive_version (version_num TEXT)")
            cursor.execute("INSERT INTO redrive_version VALUES ('0014')")
        with use_backend(database="shop"), pytest.raises(SchemaMismatch, match=r"is older \(revision 0014\) than this code"):
            add.enqueue()


def test_no_worker_can_use_a_database_in_memory() -> None:
    with django_databases(default=MEMORY), use_backend():
        call_command("migrate", verbosity=0, run_syncdb=True)
        assert add.get_result(add.enqueue(1).id).status == "READY"
        with pytest.raises(ImproperlyConfigured, match="^DATABASES\\['default'\\] is in memory, where no worker finds its tasks"):
            get_app().worker()
        with pytest.raises(CommandError, match="is in memory"):
            call_command("redrive_worker")


POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "USER": "", "PASSWORD": "", "HOST": "", "PORT": ""}


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ({}, "postgresql:///shop"),
        ({"USER": "ann", "PASSWORD": "p@ss/1", "HOST": "db", "PORT": 5433}, "postgresql://ann:p%40ss%2F1@db:5433/shop"),
        ({"HOST": "/run/postgresql", "USER": "ann"}, "postgresql://ann@/shop?host=%2Frun%2Fpostgresql"),
        ({"HOST": "a,b", "PORT": "1,2"}, "postgresql:///shop?host=a%2Cb&port=1%2C2"),
        (
            {"OPTIONS": {"sslmode": "require", "options": "-c search_path=shop", "pool": False, "server_side_binding": True}},
            "postgresql:///shop?options=-c%20search_path%3Dshop&sslmode=require",
        ),
        ({"OPTIONS": {"assume_role": "shop_owner"}}, "postgresql:///shop?options=-c%20role%3Dshop_owner"),
        ({"HOST": "db", "DISABLE_SERVER_SIDE_CURSORS": True}, "postgresql://db/shop?pool_mode=transaction"),
        ({"NAME": "", "OPTIONS": {"service": "shop"}}, "postgresql:///?service=shop"),
    ],
)
def test_the_address_has_the_connection_options_of_django(entry: dict[str, Any], url: str) -> None:
    with django_databases(default={**POSTGRES, **entry}):
        assert DjangoDatabase("default").url == url


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    entry = {**POSTGRES, "USER": "ann", "PASSWORD": "geheim-1234", "HOST": "127.0.0.1", "PORT": "1"}
    with django_databases(default=entry), use_backend():
        app = find_project("default").app
        assert (app.url, "geheim" in repr(app)) == ("postgresql://ann:***@127.0.0.1:1/shop", False)
        with pytest.raises(CommandError) as raised:
            call_command("redrive_worker", skip_checks=True)
    assert "geheim" not in str(raised.value)
