"""Calls to other HTTP services: clients on httpx2, and a transport for the httpx or httpx2 client that you have."""

from __future__ import annotations

TYPE_CHECKING = False  # as in the root: typing's own would cost 10 ms
if TYPE_CHECKING:
    from typing import Any

    from .client import Client as Client
    from .later import AsyncClient as AsyncClient
    from .transport import Transport as Transport

_HOMES = {"AsyncClient": "later", "Client": "client", "Transport": "transport"}
__all__ = ["AsyncClient", "Client", "Transport"]


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass

    def __getattr__(name: str) -> Any:
        # Loaded when first asked for: the transport works with classic httpx, where httpx2 is not installed.
        from importlib import import_module  # noqa: PLC0415

        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            found = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        except ModuleNotFoundError as missing:
            if missing.name != "httpx2":
                raise
            raise ImportError(f"redrive.http.{name} needs httpx2: pip install 'redrive[http]'") from missing
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
