"""HTTP clients with retries, and a transport for your own httpx or httpx2 client."""

from __future__ import annotations

from ..core.lazy import lazily

TYPE_CHECKING = False  # as in the root: typing's own would cost 10 ms
if TYPE_CHECKING:
    from .client import Client as Client
    from .later import AsyncClient as AsyncClient
    from .transport import Transport as Transport

_HOMES = {"AsyncClient": "later", "Client": "client", "Transport": "transport"}
__all__ = ["AsyncClient", "Client", "Transport"]


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    # Loaded when first asked for: the transport works with classic httpx, where httpx2 is not installed.
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
