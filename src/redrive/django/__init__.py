"""Django: a backend for its Tasks, migrations, a worker command, the console and idempotency keys.

Extra: `django`. Inside this package, `import django` is Django itself: imports are absolute.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..core.lazy import lazily

MIN_VERSION = (6, 0)
"""The first with `django.tasks`. It needs Python 3.12."""

try:
    import django
except ModuleNotFoundError as error:
    if error.name != "django":
        raise
    message = 'redrive.django needs Django: pip install "redrive[django]"'
    raise ImportError(message, name="django") from error


def require_tasks() -> None:
    """Raise ImportError if Django has no Tasks, or the ledger's extra is missing.

    `IdempotencyMiddleware` does not need Tasks.
    """
    if django.VERSION < MIN_VERSION:
        raise ImportError(
            "redrive.django: tasks, worker and console need Django 6.0 or newer (which needs "
            f"Python 3.12), and this is Django {django.get_version()}; "
            'pip install "redrive[django]", or use redrive.App without redrive.django',
            name="django",
        )
    require_packages("redrive.django", "django", "sqlalchemy", "alembic")


def require_packages(place: str, extra: str, /, *names: str) -> None:
    """Raise ImportError with the extra to install if one of these packages is missing."""
    for name in names:
        if find_spec(name) is None:
            raise ImportError(f'{place} needs {name}: pip install "redrive[{extra}]"', name=name)


if TYPE_CHECKING:
    from .backend import Backend as Backend
    from .idempotency import IdempotencyMiddleware as IdempotencyMiddleware
    from .project import get_app as get_app

__all__ = ["Backend", "IdempotencyMiddleware", "get_app"]

if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    _load = lazily(
        __name__,
        {"Backend": "backend", "IdempotencyMiddleware": "idempotency", "get_app": "project"},
    )

    def __getattr__(name: str) -> Any:
        if name in ("Backend", "get_app"):
            require_tasks()
        return _load(name)
