"""HTTP clients with retries, and a transport for your own httpx or httpx2 client."""

from __future__ import annotations

from ..core.lazy import lazily

TYPE_CHECKING = False  # Importing it from typing would cost 10 ms, as in the root package.
if TYPE_CHECKING:
    from .async_client import AsyncClient as AsyncClient
    from .client import Client as Client
    from .transport import Transport as Transport

_HOMES = {"AsyncClient": "async_client", "Client": "client", "Transport": "transport"}
__all__ = ["AsyncClient", "Client", "Transport"]


if not TYPE_CHECKING:  # A type checker that saw this would accept every misspelt name.
    # Loaded on first use, because the transport also works with httpx where httpx2 is missing.
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
