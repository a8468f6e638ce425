"""The URLs of the console: `path("redrive/", include("redrive.django.urls"))`."""

from __future__ import annotations

from importlib.util import find_spec

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.urls import re_path

from redrive.console import CONSOLE_PACKAGES

for _name in sorted(CONSOLE_PACKAGES):
    if find_spec(_name) is None:
        raise ImportError(f'redrive.django.urls needs {_name}: pip install "redrive[console]"')
for _name in ("django.contrib.auth", "redrive.django"):
    if not apps.is_installed(_name):
        raise ImproperlyConfigured(
            f"INSTALLED_APPS: {_name!r} is missing, which redrive.django.urls needs; add it"
        )

from redrive.django.console import show_console  # noqa: E402  # it needs the above

app_name = "redrive"
urlpatterns = [re_path(r"^(?P<path>.*)$", show_console, name="console")]
