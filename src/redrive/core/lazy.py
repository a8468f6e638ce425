"""Lazy imports: public names of a package that are loaded at first use."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing it from typing takes 10 ms; type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


EXTRAS = {
    "authlib": "oidc",
    "joserfc": "oidc",
    "fastapi": "console",
    "starlette": "console",
    "sqlalchemy": "ledger",
    "alembic": "ledger",
    "psycopg": "postgres",
    "httpx2": "http",
    "grpc": "grpc",
    "aio_pika": "rabbitmq",
    "redis": "redis",
    "nats": "nats",
    "confluent_kafka": "kafka",
    "distributed": "dask",
    "django": "django",
    "flask": "flask",
    "rich": "cli",
    "pyarrow": "arrow",
    "s3fs": "s3",
    "aiobotocore": "s3",
    "botocore": "s3",
    "obstore": "obstore",
    "fsspec": "fsspec",
    "polars": "polars",
    "pandas": "pandas",
    "duckdb": "duckdb",
    "asyncssh": "sftp",
    "temporalio": "temporal",
    "numpy": "simulate",
    "celery": "celery",
    "kombu": "celery",
    "sentry_sdk": "sentry",
}
"""The extra that installs each library."""
PACKAGE = __name__.removesuffix(".core.lazy")
"""Name of this package. A vendored copy has another one than `redrive`."""


def lazily(package: str, homes: Mapping[str, str], /) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    If a library is missing, the ImportError names the extra that installs it.

    Args:
        package: Name of the package.
        homes: The module of the package in which each name is defined.
    """

    def load(name: str) -> Any:
        from importlib import import_module  # noqa: PLC0415  # 1 ms of `import redrive`

        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f".{homes[name]}", package), name)
        except ModuleNotFoundError as missing:
            if missing.name not in EXTRAS:
                raise
            install = f'pip install "redrive[{EXTRAS[missing.name]}]"'
            message = f"{package}.{name} needs {missing.name}: {install}"
            raise ImportError(message, name=missing.name) from missing
        setattr(sys.modules[package], name, value)
        return value

    return load


class Deferred:
    """A module that is imported when one of its names is first used. Threads may share it."""

    __slots__ = ("_module",)

    def __init__(self, module: str, /) -> None:
        self._module: Any = module

    def __getattr__(self, name: str) -> Any:
        if isinstance(self._module, str):
            from importlib import import_module  # noqa: PLC0415

            self._module = import_module(self._module)
        return getattr(self._module, name)


def deferred(package: str, /, *names: str) -> list[Any]:
    """Return modules of a package that are imported at first use.

    Args:
        package: Name of the package. Write `redrive.worker` also for a vendored copy.
        names: Names of the modules.
    """
    is_ours = package == "redrive" or package.startswith("redrive.")
    home = PACKAGE + package.removeprefix("redrive") if is_ours else package
    return [Deferred(f"{home}.{name}") for name in names]
