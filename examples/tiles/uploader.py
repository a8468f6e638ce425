"""The uploader: sends what is pending, and says what became of each tile. It knows nothing of retries."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from redrive.batch import ItemStatus, Report, progress

from .store import TileStore
from .tables import Tile


class FlightStateNotOnGroundError(Exception):
    """In the air the radio is for other things."""


class SatelliteProviderError(Exception):
    """The provider cannot be reached at all."""


@dataclass(frozen=True)
class UploadRequest:
    """Whose tiles."""

    flight_id: str


@runtime_checkable
class TileUploader(Protocol):
    """What everybody else depends on."""

    def upload_pending_tiles(self, request: UploadRequest) -> Report:
        """Send what is pending."""

    def enumerate_pending_tiles(self, flight_id: str) -> list[str]:
        """What would be sent."""

    def confirm_flight_state(self) -> bool:
        """Whether the aircraft is on the ground."""


class HttpTileUploader:
    """Over HTTP, tile by tile, on one connection. One thread at a time."""

    def __init__(
        self, store: TileStore, provider: str, *, on_ground: Callable[[], bool] = lambda: True, timeout: float = 10
    ) -> None:
        self.store = store
        self.provider = provider
        self.on_ground = on_ground
        self.timeout = timeout

    def confirm_flight_state(self) -> bool:
        """Whether the aircraft is on the ground."""
        return self.on_ground()

    def enumerate_pending_tiles(self, flight_id: str) -> list[str]:
        """What would be sent."""
        return [tile.id for tile in self.store.pending_uploads(flight_id)]

    def upload_pending_tiles(self, request: UploadRequest) -> Report:
        """Send what is pending; what is accepted is marked at once, so that it is never sent again."""
        if not self.confirm_flight_state():
            raise FlightStateNotOnGroundError(f"flight {request.flight_id} is in the air: nothing was sent")
        tiles = self.store.pending_uploads(request.flight_id)
        said = []
        with closing(http.client.HTTPConnection(self.provider, timeout=self.timeout)) as connection:
            for done, tile in enumerate(tiles, 1):
                said.append(self._send(connection, tile))
                progress(done, len(tiles))
        rejected = sum(item.status == "rejected" for item in said)
        return Report("success" if not rejected else "failure" if rejected == len(said) else "partial", said)

    def _send(self, connection: http.client.HTTPConnection, tile: Tile) -> ItemStatus:
        try:
            connection.request("PUT", f"/tiles/{tile.id}", tile.blob, {"X-SHA256": tile.sha256})
            reply = connection.getresponse()
            body = reply.read()
        except (OSError, http.client.HTTPException) as error:
            raise SatelliteProviderError(f"{self.provider}: {error}") from error
        if reply.status == 201:
            self.store.mark_uploaded(tile.id)
            return ItemStatus(tile.id, "acknowledged")
        return ItemStatus(tile.id, "rejected", f"{reply.status} {json.loads(body)['reason']}")
