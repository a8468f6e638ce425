"""The permissions of the console. The ledger's tables are not models of Django."""

from __future__ import annotations

from django.db import models


class Console(models.Model):
    """Carries the permissions `redrive.view_console` and `redrive.operate_console`. No table."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = (
            ("view_console", "Can view the Redrive console"),
            ("operate_console", "Can act in the Redrive console"),
        )
