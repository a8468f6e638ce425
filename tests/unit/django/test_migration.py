"""`manage.py migrate` for the ledger, on SQLite and on Postgres."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.db import connections
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.loader import MigrationLoader

from redrive.django.database import DjangoDatabase
from redrive.django.ledger_migration import MigrateLedger, ledger_databases
from redrive.ledger.db.tables import HEAD, METADATA
from tests.django_project import django_databases, django_settings
from tests.unit.django.conftest import use_backend
from tests.unit.django.sample_tasks import add

pytestmark = pytest.mark.req("X-2")


def output_of(command: str, *arguments: str) -> str:
    printed = io.StringIO()
    call_command(command, *arguments, stdout=printed)
    return printed.getvalue()


def test_migrate_makes_the_tables_and_permissions(database: str) -> None:
    with use_backend():
        assert set(METADATA.tables) <= set(connections["default"].introspection.table_names())
        names = Permission.objects.filter(content_type__app_label="redrive").values_list("codename", flat=True)
        assert sorted(names) == ["operate_console", "view_console"]
        assert "No migrations to apply" in output_of("migrate")
        assert "No changes detected" in output_of("makemigrations", "--check", "--dry-run", "redrive")


def test_the_newest_migration_is_of_the_newest_revision() -> None:
    """A revision of Redrive needs a migration of Django, so that `migrate --check` notices it."""
    migrations = MigrationLoader(None).disk_migrations
    numbered = {name: migration for (app, name), migration in migrations.items() if app == "redrive"}
    operations = [each for each in numbered[max(numbered)].operations if isinstance(each, MigrateLedger)]
    assert [each.revision for each in operations] == [HEAD]


def test_the_migration_is_shown_and_cannot_be_undone(database: str, tmp_path: Path) -> None:
    with use_backend():
        plan = output_of("sqlmigrate", "redrive", "0001")
        assert re.search(r"-- Create or upgrade the tables redrive_\* \(revision \d{4}\)", plan)
        assert "-- THIS OPERATION CANNOT BE WRITTEN AS SQL" in plan
        with pytest.raises(IrreversibleError):
            call_command("migrate", "redrive", "zero", verbosity=0)
        assert DjangoDatabase("default").revision() == HEAD
    with django_databases(default=django_settings(f"sqlite:///{tmp_path / 'new.sqlite3'}")), use_backend():
        assert "Create or upgrade the tables redrive_*" in output_of("migrate", "--plan")
        assert DjangoDatabase("default").revision() is None


def test_each_migrate_makes_tables_that_new_settings_need(tmp_path: Path) -> None:
    """The migration of an app is applied once, and the ledger may move to another database later."""
    entries = {name: django_settings(f"sqlite:///{tmp_path / name}.sqlite3") for name in ("default", "jobs")}
    with django_databases(**entries):
        call_command("migrate", verbosity=0, run_syncdb=True)  # without a backend of Redrive
        call_command("migrate", database="jobs", verbosity=0, run_syncdb=True)
        assert [DjangoDatabase(alias).revision() for alias in entries] == [None, None]
        with use_backend(database="jobs"):
            assert ledger_databases() == {"jobs"}
            call_command("migrate", verbosity=0)
            call_command("migrate", database="jobs", verbosity=0)
            assert [DjangoDatabase(alias).revision() for alias in entries] == [None, HEAD]
            assert add.get_result(add.enqueue(1).id).status == "READY"
