"""Files on any backend, each with exactly one layer of retries."""

from __future__ import annotations

from ..core.lazy import lazily

TYPE_CHECKING = False  # as in the root: typing's own would cost 10 ms
if TYPE_CHECKING:
    from .backend import Backend as Backend
    from .backend import How as How
    from .body import Body as Body
    from .config import BackendConfig as BackendConfig
    from .config import RegistryConfig as RegistryConfig
    from .config import StoreProfile as StoreProfile
    from .info import Capabilities as Capabilities
    from .info import FileInfo as FileInfo
    from .registry import Registry as Registry
    from .store import Store as Store
    from .transferred import transfer as transfer

_HOMES = {
    "Backend": "backend",
    "BackendConfig": "config",
    "Body": "body",
    "Capabilities": "info",
    "FileInfo": "info",
    "How": "backend",
    "Registry": "registry",
    "RegistryConfig": "config",
    "Store": "store",
    "StoreProfile": "config",
    "transfer": "transferred",
}
__all__ = [*_HOMES]  # noqa: PLE0604  # the names are listed once, above


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    # Loaded when first asked for: every App knows this package, and few have stores.
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
