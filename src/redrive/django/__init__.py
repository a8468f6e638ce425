"""Django: a backend for its Tasks, migrations, a worker command, and the console. Extra: `django`.

Inside this package, `import django` is Django itself: imports are absolute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

MIN_VERSION = (6, 0)
"""The first with `django.tasks`. It needs Python 3.12."""
NEEDS = "redrive.django needs Django 6.0 or newer"

try:
    import django
except ModuleNotFoundError as error:
    if error.name != "django":
        raise
    raise ImportError(f'{NEEDS}: pip install "redrive[django]"', name="django") from error
if django.VERSION < MIN_VERSION:
    raise ImportError(
        f"{NEEDS} (which needs Python 3.12), and this is Django {django.get_version()}; "
        f'pip install "redrive[django]", or use redrive.App without redrive.django',
        name="django",
    )

if TYPE_CHECKING:
    from .backend import Backend as Backend
    from .project import get_app as get_app
else:
    __getattr__ = lazily(__name__, {"Backend": "backend", "get_app": "project"})

__all__ = ["Backend", "get_app"]
