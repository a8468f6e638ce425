"""The Django app of Redrive: `INSTALLED_APPS = [..., "redrive.django"]`."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from . import require_tasks

require_tasks()

from .ledger_migration import migrate_ledger  # noqa: E402  # it needs them


class RedriveConfig(AppConfig):
    """Migrations, permissions and commands of Redrive. Its label is `redrive`."""

    name = "redrive.django"
    label = "redrive"
    verbose_name = "Redrive"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Let each `manage.py migrate` bring the tables up to date."""
        post_migrate.connect(_after_migrate, sender=self)


def _after_migrate(*, using: str, **_: Any) -> None:
    # The migration may be older than the settings: then it found no ledger in this database.
    migrate_ledger(using)
