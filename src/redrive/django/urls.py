"""The URLs of the console: `path("redrive/", include("redrive.django.urls"))`."""

from __future__ import annotations

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.urls import re_path

from redrive.console import CONSOLE_PACKAGES
from redrive.django import require_packages

require_packages("redrive.django.urls", "console", *sorted(CONSOLE_PACKAGES))
for _name in ("django.contrib.auth", "redrive.django"):
    if not apps.is_installed(_name):
        raise ImproperlyConfigured(
            f"INSTALLED_APPS: {_name!r} is missing, which redrive.django.urls needs; add it"
        )

from redrive.django.console import show_console  # noqa: E402  # it needs the above

app_name = "redrive"
urlpatterns = [re_path(r"^(?P<path>.*)$", show_console, name="console")]
