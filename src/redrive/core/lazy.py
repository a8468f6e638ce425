"""Lazy: public names of a package that are loaded when first asked for."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would cost 10 ms; type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazily(package: str, homes: Mapping[str, str], /) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names live in these modules of it. Each is kept once it was found."""

    def found(name: str) -> Any:
        import sys  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415  # 1 ms that `import redrive` alone need not pay

        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{homes[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    return found
