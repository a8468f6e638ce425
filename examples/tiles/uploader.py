"""The uploader sends pending tiles and reports a status for each of them. It does not retry."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from redrive.batch import ItemStatus, Report, progress

from .store import TileStore
from .tables import Tile

Outcome: TypeAlias = Literal["success", "partial", "failure"]


class FlightStateNotOnGroundError(Exception):
    """The aircraft is in the air, where tiles are not uploaded."""


class SatelliteProviderError(Exception):
    """The provider cannot be reached."""


@dataclass(frozen=True)
class UploadRequest:
    """The flight whose tiles are uploaded."""

    flight_id: str


@runtime_checkable
class TileUploader(Protocol):
    """The interface that other code uses."""

    def upload_pending_tiles(self, request: UploadRequest) -> Report:
        """Send pending tiles."""

    def enumerate_pending_tiles(self, flight_id: str) -> list[str]:
        """Return the ids of pending tiles."""

    def confirm_flight_state(self) -> bool:
        """Return whether the aircraft is on the ground."""


class HttpTileUploader:
    """Upload over HTTP, tile by tile, on one connection. Not thread-safe."""

    def __init__(
        self, store: TileStore, provider: str, *, on_ground: Callable[[], bool] = lambda: True, timeout: float = 10
    ) -> None:
        self.store = store
        self.provider = provider
        self.on_ground = on_ground
        self.timeout = timeout

    def confirm_flight_state(self) -> bool:
        """Return whether the aircraft is on the ground."""
        return self.on_ground()

    def enumerate_pending_tiles(self, flight_id: str) -> list[str]:
        """Return the ids of pending tiles."""
        return [tile.id for tile in self.store.pending_uploads(flight_id)]

    def upload_pending_tiles(self, request: UploadRequest) -> Report:
        """Send pending tiles. Each accepted tile is marked at once, so that it is not sent again."""
        if not self.confirm_flight_state():
            raise FlightStateNotOnGroundError(f"flight {request.flight_id} is in the air: nothing was sent")
        tiles = self.store.pending_uploads(request.flight_id)
        statuses: list[ItemStatus] = []
        with closing(http.client.HTTPConnection(self.provider, timeout=self.timeout)) as connection:
            for tile in tiles:
                try:
                    statuses.append(self._send(connection, tile))
                except SatelliteProviderError:
                    if not statuses:
                        raise  # nothing is known about any tile
                    break
                progress(len(statuses), len(tiles))
        # The connection dropped: the other tiles stay pending, which does not count as an attempt.
        statuses += [ItemStatus(tile.id, "pending") for tile in tiles[len(statuses) :]]
        # Given-up tiles are reported in every call, so that the caller sees that they never arrived.
        sent = {item.id for item in statuses}
        given_up = [
            ItemStatus(tile_id, "giveup") for tile_id in self.store.given_up_uploads(request.flight_id) if tile_id not in sent
        ]
        return Report(_outcome(statuses, given_up), statuses + given_up)

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
        return ItemStatus(tile.id, "rejected", f"{reply.status} {_reason(reply, body)}")


def _outcome(statuses: list[ItemStatus], given_up: list[ItemStatus]) -> Outcome:
    acknowledged = sum(item.status == "acknowledged" for item in statuses)
    if acknowledged < len(statuses):
        return "partial" if acknowledged else "failure"
    return "partial" if given_up else "success"


def _reason(reply: http.client.HTTPResponse, body: bytes) -> str:
    """Return the provider's reason. A proxy in between responds with HTML, or with no body at all."""
    try:
        return str(json.loads(body)["reason"])
    except (ValueError, TypeError, KeyError):
        return reply.reason
