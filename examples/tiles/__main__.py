"""Upload tiles to a provider that rejects some of them, with a progress bar.

Run it with `python -m examples.tiles [FILE]`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sqlalchemy import create_engine, update

from redrive.batch import Settings, bar

from .migrate import migrate
from .provider import Provider
from .store import TileStore
from .tables import Tile, VotingStatus
from .uploader import UploadRequest
from .wiring import Config, build_tile_uploader

TILES = 60
FLIGHT = "flight-7"


def refuse(tile_id: str, time: int) -> str:
    """Reject a third of the tiles at first, and some of these a second time."""
    number = int(tile_id[1:])
    return "busy, try later" if (number % 3 == 0 and time == 1) or (number % 9 == 0 and time == 2) else ""


def main(path: str | None = None) -> None:
    """Call the uploader twice, as an operator does some minutes apart. The table stays in `path`, if it is passed."""
    if path is not None and Path(path).exists():
        sys.exit(f"{path}: already exists; remove it or pass another path")
    with tempfile.TemporaryDirectory() as folder, Provider() as provider:
        engine = create_engine(f"sqlite:///{path or Path(folder) / 'onboard.db'}")
        migrate(engine)
        store = TileStore(engine)
        store.add(FLIGHT, [(f"t{number:03}", number.to_bytes(2, "big") * 500) for number in range(TILES)])
        with engine.begin() as tx:  # a tile that was damaged on board is always rejected
            tx.execute(update(Tile).where(Tile.id == "t017").values(blob=b"truncated"))
        provider.refuse = refuse
        # Short waits for a demonstration: 1.2, 1.4 and 1.7 s. With a base below 1 the waits would shrink.
        uploader = build_tile_uploader(Config(provider.url, Settings(backoff_base=1.2, backoff_cap=5)), store)
        for call in (1, 2):
            with bar():
                report = uploader.upload_pending_tiles(UploadRequest(FLIGHT))
            counts = ", ".join(f"{report.count(status)} {status}" for status in ("acknowledged", "giveup", "pending"))
            print(f"call {call}: {report.outcome} after {report.retry_count} retries: {counts}")
            if report.next_retry_at is not None:
                print(f"        call again at {report.next_retry_at:%H:%M:%S} UTC")
        given_up = {
            tile: attempts for tile, (status, attempts) in store.statuses().items() if status == VotingStatus.UPLOAD_GIVEUP
        }
        print(f"given up: {given_up}")
        print(f"arrived: {len(provider.accepted)} of {TILES}; sent in total: {provider.received.total()}")
        engine.dispose()
        if len(provider.accepted) != TILES - 1 or set(given_up) != {"t017"}:
            sys.exit("unexpected result: all tiles but t017 should have arrived")


if __name__ == "__main__":
    main(*sys.argv[1:2])
