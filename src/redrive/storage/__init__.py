"""Files on any backend, each with one layer of retries."""

from __future__ import annotations

from .backend import Backend, How
from .body import Body
from .config import BackendConfig, RegistryConfig, StoreProfile
from .info import Capabilities, FileInfo
from .registry import Registry
from .store import Store
from .transfer import transfer

__all__ = [
    "Registry",
    "RegistryConfig",
    "BackendConfig",
    "StoreProfile",
    "Store",
    "FileInfo",
    "Capabilities",
    "transfer",
    "Backend",
    "Body",
    "How",
]
