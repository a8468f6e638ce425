"""Extra: a backend's client, imported when it is first needed; where it is missing, what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def client(module: str, extra: str, /) -> Any:
    """The client's module; ImportError says which extra brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            raise
        raise ImportError(f'this backend needs its client: pip install "redrive[{extra}]"', name=missing.name) from missing
