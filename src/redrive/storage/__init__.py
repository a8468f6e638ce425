"""Files on any backend, each with exactly one layer of retries."""

from __future__ import annotations

from ..core.lazy import lazily

TYPE_CHECKING = False  # As in the root: importing typing would cost 10 ms.
if TYPE_CHECKING:
    from .backend import Backend as Backend
    from .backend import Capabilities as Capabilities
    from .backend import FileInfo as FileInfo
    from .backend import How as How
    from .body import Body as Body
    from .registry import BackendConfig as BackendConfig
    from .registry import Registry as Registry
    from .registry import RegistryConfig as RegistryConfig
    from .registry import StoreProfile as StoreProfile
    from .store import Store as Store
    from .store import transfer as transfer

_MODULES = {
    "Backend": "backend",
    "BackendConfig": "registry",
    "Body": "body",
    "Capabilities": "backend",
    "FileInfo": "backend",
    "How": "backend",
    "Registry": "registry",
    "RegistryConfig": "registry",
    "Store": "store",
    "StoreProfile": "registry",
    "transfer": "store",
}
__all__ = [*_MODULES]  # noqa: PLE0604  # the names are listed once, above


if not TYPE_CHECKING:  # A type checker that saw this would accept every misspelt name.
    # Loaded at the first use: every App imports this package, and few apps have stores.
    __getattr__ = lazily(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
