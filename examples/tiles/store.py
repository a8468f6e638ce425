"""The tiles in their table: pending and uploaded ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.orm import Session

from redrive.batch import TableItems

from .tables import Tile, VotingStatus


class TileStore:
    """The onboard store. Threads may share it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def add(self, flight_id: str, blobs: Iterable[tuple[str, bytes]]) -> None:
        """Add tiles of a flight."""
        rows = [
            {"id": tile_id, "flight_id": flight_id, "blob": blob, "sha256": hashlib.sha256(blob).hexdigest()}
            for tile_id, blob in blobs
        ]
        with self.engine.begin() as tx:
            tx.execute(insert(Tile), rows)

    def pending_uploads(self, flight_id: str) -> list[Tile]:
        """Return tiles that are neither uploaded nor given up."""
        wanted = select(Tile).where(Tile.flight_id == flight_id, Tile.voting_status == VotingStatus.PENDING).order_by(Tile.id)
        with Session(self.engine, expire_on_commit=False) as session:
            return list(session.scalars(wanted))

    def given_up_uploads(self, flight_id: str) -> list[str]:
        """Return the ids of tiles that were given up."""
        wanted = select(Tile.id).where(Tile.flight_id == flight_id, Tile.voting_status == VotingStatus.UPLOAD_GIVEUP)
        with self.engine.connect() as connection:
            return list(connection.scalars(wanted.order_by(Tile.id)))

    def mark_uploaded(self, tile_id: str) -> None:
        """Mark a tile as uploaded, so that it is not sent again."""
        with self.engine.begin() as tx:
            tx.execute(update(Tile).where(Tile.id == tile_id).values(voting_status=VotingStatus.UPLOADED))

    def statuses(self) -> dict[str, tuple[str, int]]:
        """Return the state and the number of rejections of each tile."""
        with self.engine.connect() as connection:
            return {
                row[0]: (row[1], row[2]) for row in connection.execute(select(Tile.id, Tile.voting_status, Tile.upload_attempts))
            }

    def items(self) -> TableItems:
        """Return the item store in which Redrive counts rejections: columns of the same table."""
        return TableItems(
            self.engine,
            id=Tile.id,
            attempts=Tile.upload_attempts,
            status=Tile.voting_status,
            uncharged=Tile.upload_uncharged,
            reason=Tile.upload_reason,
            pending=VotingStatus.PENDING,
            giveup=VotingStatus.UPLOAD_GIVEUP,
            done=(VotingStatus.UPLOADED, VotingStatus.TRUSTED, VotingStatus.REJECTED),
        )
