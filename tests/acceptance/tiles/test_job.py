"""The upload job of the example: hours without a network, an outage with few tiles, given-up tiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import update

from examples.tiles.job import build_upload_job
from examples.tiles.provider import Provider
from examples.tiles.store import TileStore
from examples.tiles.tables import Tile
from examples.tiles.uploader import HttpTileUploader, UploadRequest
from examples.tiles.wiring import Config, build_tile_uploader
from redrive import App, Command
from redrive.batch import Settings
from redrive.testing import sandbox


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path / 'never.db'}")


def add_tiles(store: TileStore, tiles: int) -> None:
    store.add("f", [(f"t{n:02}", bytes([n]) * 100) for n in range(tiles)])


def build_job(app: App, store: TileStore, provider: Provider) -> Command[[str], None]:
    return build_upload_job(app, build_tile_uploader(Config(provider.url, Settings()), store))


def test_a_job_survives_six_hours_without_a_network(app: App, store: TileStore, provider: Provider) -> None:
    add_tiles(store, 3)
    with Provider() as closed:
        offline = closed.url
    uploader = HttpTileUploader(store, offline)
    upload = build_upload_job(app, uploader)
    with sandbox(app) as box:
        job = upload.submit("f")
        for _ in range(6 * 12):
            box.drain(forever=False)
            box.clock.advance(300)
        assert (job.state, box.dead) == ("retry_wait", [])
        assert set(store.statuses().values()) == {("pending", 0)}
        uploader.provider = provider.url
        box.drain()
        assert job.state == "done"
    assert set(store.statuses().values()) == {("uploaded", 0)}


def test_a_job_with_a_given_up_tile_is_a_dead_letter(app: App, store: TileStore, provider: Provider) -> None:
    """The damaged tile is given up in the first run. The second run only has the other tile to send."""
    add_tiles(store, 3)
    with store.engine.begin() as tx:
        tx.execute(update(Tile).where(Tile.id == "t01").values(blob=b"truncated"))
    for _ in range(3):
        store.items().increment("t01")
    provider.refuse = lambda tile, time: "busy" if tile == "t02" and time < 5 else ""
    upload = build_job(app, store, provider)
    with sandbox(app) as box:
        job = upload.submit("f")
        assert box.drain() == 2
        assert (job.state, [dead.id for dead in box.dead]) == ("dlq", [job.id])
    assert provider.received == {"t00": 1, "t01": 2, "t02": 5}
    assert {tile: row[0] for tile, row in store.statuses().items()} == {
        "t00": "uploaded",
        "t01": "upload_giveup",
        "t02": "uploaded",
    }


@pytest.mark.req("B-15")
def test_tiles_given_up_in_an_outage_are_a_dead_letter(app: App, store: TileStore, provider: Provider) -> None:
    add_tiles(store, 3)
    provider.refuse = lambda *_: "overloaded"
    upload = build_job(app, store, provider)
    with sandbox(app) as box:
        job = upload.submit("f")
        box.drain()
        assert job.state == "dlq"
    assert {row[0] for row in store.statuses().values()} == {"upload_giveup"}


def test_every_report_has_the_given_up_tiles(store: TileStore, provider: Provider) -> None:
    add_tiles(store, 2)
    store.items().give_up("t01", "410 gone")
    uploader = build_tile_uploader(Config(provider.url, Settings()), store)
    for acknowledged in (1, 0):
        report = uploader.upload_pending_tiles(UploadRequest("f"))
        assert (report.outcome, report.count("acknowledged"), report.count("giveup")) == ("partial", acknowledged, 1)
        assert report.next_retry_at is None
    assert provider.received == {"t00": 1}
