"""The composition root: the uploader with its retries, unless the configuration says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from redrive.batch import Settings, retrying

from .store import TileStore
from .uploader import HttpTileUploader, TileUploader


@dataclass(frozen=True)
class Config:
    """Where the provider is, and the two budgets."""

    provider: str
    retries: Settings

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Config:
        """C11_PROVIDER, C11_MAX_IN_CALL_RETRIES, C11_MAX_PER_TILE_ATTEMPTS, C11_BACKOFF_CAP_S, C11_DISABLE_RETRY_DECORATOR, …"""
        return cls(environ["C11_PROVIDER"], Settings.from_env("C11", environ) or Settings())


def build_tile_uploader(config: Config, store: TileStore, *, on_ground: Callable[[], bool] = lambda: True) -> TileUploader:
    """A TileUploader. Bypassed, it is the bare one, and the log says so."""
    bare = HttpTileUploader(store, config.provider, on_ground=on_ground)
    return retrying(bare, items=store.items(), settings=config.retries, method="upload_pending_tiles")
