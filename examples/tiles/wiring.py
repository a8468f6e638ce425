"""Build the uploader, with retries unless the configuration switches them off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from redrive.batch import Settings, retrying

from .store import TileStore
from .uploader import HttpTileUploader, TileUploader


@dataclass(frozen=True)
class Config:
    """Address of the provider, and the retry settings."""

    provider: str
    retries: Settings

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Config:
        """Read C11_PROVIDER and the retry settings, such as C11_MAX_IN_CALL_RETRIES and C11_DISABLE_RETRY_DECORATOR."""
        return cls(environ["C11_PROVIDER"], Settings.from_env("C11", environ) or Settings())


def build_tile_uploader(config: Config, store: TileStore, *, on_ground: Callable[[], bool] = lambda: True) -> TileUploader:
    """Return a TileUploader. If retries are switched off, it is the bare one, and `batch_disabled` is logged."""
    bare = HttpTileUploader(store, config.provider, on_ground=on_ground)
    return retrying(bare, items=store.items(), settings=config.retries, method="upload_pending_tiles")
