"""The ledger at revision 0016, and the permissions of the console."""

from __future__ import annotations

from django.db import migrations, models

from redrive.django.ledger_migration import MigrateLedger


class Migration(migrations.Migration):
    """The first migration."""

    initial = True
    atomic = False  # the ledger is migrated by a connection of its own
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Console",
            fields=[("id", models.BigAutoField(primary_key=True, serialize=False))],
            options={
                "permissions": (
                    ("view_console", "Can view the Redrive console"),
                    ("operate_console", "Can act in the Redrive console"),
                ),
                "managed": False,
                "default_permissions": (),
            },
        ),
        MigrateLedger("0016"),
    )
