"""Lazy: public names of a package that are loaded when first asked for."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would cost 10 ms; type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


EXTRAS = {
    "sqlalchemy": "ledger", "alembic": "ledger", "psycopg": "postgres", "httpx2": "http", "grpc": "grpc", "redis": "redis",
    "rich": "cli", "pyarrow": "s3-pyarrow", "s3fs": "s3", "asyncssh": "sftp",
}  # fmt: skip
"""What brings a library that a name of ours needs."""


def lazily(package: str, homes: Mapping[str, str], /) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names live in these modules of it. Each is kept once it was found.

    ImportError names the extra where a library is missing.
    """

    def found(name: str) -> Any:
        import sys  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415  # 1 ms that `import redrive` alone need not pay

        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f".{homes[name]}", package), name)
        except ModuleNotFoundError as missing:
            if missing.name not in EXTRAS:
                raise
            wanted = f'{package}.{name} needs {missing.name}: pip install "redrive[{EXTRAS[missing.name]}]"'
            raise ImportError(wanted, name=missing.name) from missing
        setattr(sys.modules[package], name, value)
        return value

    return found


class Deferred:
    """A module that is imported at the first use of one of its names. Threads may share it."""

    __slots__ = ("_module",)

    def __init__(self, module: str, /) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(self._module), name)


def deferred(package: str, /, *names: str) -> list[Any]:
    """Modules of a package that are imported at their first use, for programs that need few of them."""
    return [Deferred(f"{package}.{name}") for name in names]
