"""The thirteen acceptance criteria of document 000 against the example, with its own table and a real provider over HTTP."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, inspect, text, update

import examples.tiles
import examples.tiles.__main__ as program
from examples.tiles.migrate import FIRST, migrate
from examples.tiles.provider import Provider
from examples.tiles.store import TileStore
from examples.tiles.tables import Tile, VotingStatus
from examples.tiles.uploader import (
    FlightStateNotOnGroundError,
    HttpTileUploader,
    SatelliteProviderError,
    TileUploader,
    UploadRequest,
)
from examples.tiles.wiring import Config, build_tile_uploader
from redrive.batch import ItemStatus, Report, Settings, TableItems
from redrive.journal import Ring
from redrive.testing import FakeClock

FLIGHT = UploadRequest("f")


@pytest.fixture
def counted_tiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every tile with a counted rejection, in order."""
    seen: list[str] = []
    one, many = TableItems.increment, TableItems.increment_many

    def increment(self: TableItems, tile: str) -> int:
        seen.append(tile)
        return one(self, tile)

    def increment_many(self: TableItems, tiles: Any) -> Any:
        seen.extend(tiles)
        return many(self, tiles)

    monkeypatch.setattr(TableItems, "increment", increment)
    monkeypatch.setattr(TableItems, "increment_many", increment_many)
    return seen


def build_uploader(store: TileStore, provider: Provider, tiles: int, settings: Settings | None = None) -> TileUploader:
    store.add("f", [(f"t{n:02}", bytes([n]) * 100) for n in range(tiles)])
    return build_tile_uploader(Config(provider.url, settings or Settings()), store)


def damage(store: TileStore, *tiles: str) -> None:
    with store.engine.begin() as tx:
        tx.execute(update(Tile).where(Tile.id.in_(tiles)).values(blob=b"truncated"))


@pytest.mark.req("B-2")
def test_ac_01_success_on_the_first_attempt(
    store: TileStore, provider: Provider, redrive_clock: FakeClock, counted_tiles: list[str]
) -> None:
    report = build_uploader(store, provider, 10).upload_pending_tiles(FLIGHT)
    assert report == Report("success", [ItemStatus(f"t{n:02}", "acknowledged") for n in range(10)])
    assert (redrive_clock.slept, counted_tiles, provider.received.total()) == ([], [], 10)


@pytest.mark.req("B-3", "B-5", "B-6")
def test_ac_02_partial_success_with_retries_left(
    store: TileStore, provider: Provider, redrive_clock: FakeClock, counted_tiles: list[str]
) -> None:
    provider.refuse = lambda tile, time: "busy" if tile < "t03" and time == 1 else ""
    report = build_uploader(store, provider, 10).upload_pending_tiles(FLIGHT)
    assert counted_tiles == ["t00", "t01", "t02"]
    assert redrive_clock.slept == [2.0]
    assert (report.outcome, report.retry_count, report.next_retry_at) == ("success", 1, None)
    assert report.count("acknowledged") == 10
    assert provider.received.total() == 13


@pytest.mark.req("B-4", "J-1")
def test_ac_03_the_budget_of_a_tile_is_spent(
    store: TileStore,
    provider: Provider,
    redrive_clock: FakeClock,
    redrive_journal: Ring,
    caplog: pytest.LogCaptureFixture,
) -> None:
    uploader = build_uploader(store, provider, 3, Settings(max_in_call_retries=9))
    damage(store, "t01")
    with caplog.at_level(logging.INFO, "redrive"):
        report = uploader.upload_pending_tiles(FLIGHT)
    assert store.statuses()["t01"] == (VotingStatus.UPLOAD_GIVEUP, 5)
    (record,) = [record for record in redrive_journal.records if record.kind == "giveup"]
    assert {name: record.fields[name] for name in ("item", "attempts", "reason")} == {
        "item": "t01",
        "attempts": 5,
        "reason": "422 checksum mismatch",
    }
    assert len([line for line in caplog.records if line.levelno == logging.ERROR]) == 1
    assert (report.outcome, report.next_retry_at, report.count("giveup")) == ("partial", None, 1)
    assert provider.received["t01"] == 5
    uploader.upload_pending_tiles(FLIGHT)
    assert provider.received["t01"] == 5  # never sent again
    assert uploader.enumerate_pending_tiles("f") == []


@pytest.mark.req("B-5", "B-6")
def test_ac_04_the_retries_of_a_call_are_spent(store: TileStore, provider: Provider, redrive_clock: FakeClock) -> None:
    uploader = build_uploader(store, provider, 2)
    damage(store, "t00")
    report = uploader.upload_pending_tiles(FLIGHT)
    assert provider.received["t00"] == 4
    assert redrive_clock.slept == [2.0, 4.0, 8.0]
    assert (report.outcome, report.retry_count) == ("partial", 3)
    assert report.next_retry_at == redrive_clock.now() + timedelta(seconds=60)


@pytest.mark.req("B-5")
def test_ac_05_the_cap_of_waits(store: TileStore, provider: Provider, redrive_clock: FakeClock) -> None:
    uploader = build_uploader(store, provider, 2, Settings(max_in_call_retries=10, max_per_item_attempts=100, backoff_cap=10))
    damage(store, "t00")
    uploader.upload_pending_tiles(FLIGHT)
    assert redrive_clock.slept[5] == 10.0
    assert redrive_clock.slept == [2, 4, 8, *[10] * 7]


def test_ac_06_the_give_up_value_exists() -> None:
    assert VotingStatus("upload_giveup") is VotingStatus.UPLOAD_GIVEUP
    assert {"PENDING", "TRUSTED", "REJECTED", "UPLOAD_GIVEUP"} <= set(VotingStatus.__members__)
    page = (Path(examples.tiles.__file__).parent / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^- v1\.1\.0: .*`VotingStatus\.UPLOAD_GIVEUP`", page, re.MULTILINE)


@pytest.mark.req("B-10")
def test_ac_07_an_increment_returns_the_new_count(store: TileStore, provider: Provider) -> None:
    build_uploader(store, provider, 10)
    items = store.items()
    with store.engine.begin() as tx:
        tx.execute(update(Tile).where(Tile.id == "t00").values(upload_attempts=2))
    assert items.increment("t00") == 3
    assert store.statuses()["t00"] == ("pending", 3)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: [items.increment(f"t{n:02}") for _ in range(5)], range(1, 9)))
    assert {store.statuses()[f"t{n:02}"][1] for n in range(1, 9)} == {5}


def columns(engine: Engine) -> dict[str, Any]:
    return {column["name"]: column for column in inspect(engine).get_columns("tiles")}


@pytest.mark.req("B-11")
def test_ac_08_the_migration_adds_the_column_and_rolls_back(engine: Engine) -> None:
    migrate(engine, FIRST)
    assert "upload_attempts" not in columns(engine)
    old = "INSERT INTO tiles (id, flight_id, blob, sha256, voting_status) VALUES ('old', 'f', :blob, 'x', 'trusted')"
    with engine.begin() as tx:
        tx.execute(text(old), {"blob": b"kept"})
    migrate(engine)
    added = columns(engine)["upload_attempts"]
    assert (str(added["type"]), added["nullable"]) == ("INTEGER", False)
    with engine.begin() as tx:
        assert tx.execute(text("SELECT id, voting_status, upload_attempts FROM tiles")).all() == [("old", "trusted", 0)]
        tx.execute(text("UPDATE tiles SET voting_status = 'upload_giveup'"))
    migrate(engine, FIRST)
    assert "upload_attempts" not in columns(engine)
    with engine.begin() as tx:
        assert [(row[0], bytes(row[1]), row[2]) for row in tx.execute(text("SELECT id, blob, voting_status FROM tiles"))] == [
            ("old", b"kept", "pending")
        ]
        with pytest.raises(Exception, match="ck_tiles_voting_status"):
            tx.execute(text("UPDATE tiles SET voting_status = 'upload_giveup'"))


@pytest.mark.req("B-1")
def test_ac_09_a_drop_in_for_the_protocol(store: TileStore, provider: Provider) -> None:
    uploader = build_uploader(store, provider, 1)
    assert isinstance(uploader, TileUploader)
    assert isinstance(uploader, HttpTileUploader)
    assert type(uploader) is not HttpTileUploader


@pytest.mark.req("B-9")
def test_ac_10_retries_can_be_disabled(store: TileStore, provider: Provider, caplog: pytest.LogCaptureFixture) -> None:
    config = Config.from_env({"C11_PROVIDER": provider.url, "C11_DISABLE_RETRY_DECORATOR": "true"})
    with caplog.at_level(logging.INFO, "redrive"):
        uploader = build_tile_uploader(config, store)
    assert type(uploader) is HttpTileUploader
    assert [line.getMessage() for line in caplog.records] == ["batch disabled operation=HttpTileUploader.upload_pending_tiles"]
    kept = Config.from_env({"C11_PROVIDER": provider.url, "C11_MAX_PER_TILE_ATTEMPTS": "7", "C11_BACKOFF_CAP_S": "30"})
    assert kept.retries == Settings(max_per_item_attempts=7, backoff_cap=30)


@pytest.mark.req("B-9")
def test_ac_11_other_methods_pass_through(store: TileStore, provider: Provider) -> None:
    asked: list[str] = []
    store.add("f", [("t00", b"x")])
    uploader = build_tile_uploader(Config(provider.url, Settings()), store, on_ground=lambda: not asked.append("?"))  # type: ignore[func-returns-value]
    assert uploader.enumerate_pending_tiles("f") == ["t00"]
    assert uploader.enumerate_pending_tiles("other") == []
    assert uploader.confirm_flight_state() is True
    assert asked == ["?"]
    assert uploader.confirm_flight_state.__func__ is HttpTileUploader.confirm_flight_state  # type: ignore[attr-defined]


@pytest.mark.req("B-7")
@pytest.mark.parametrize(
    ("on_ground", "error"),
    [(lambda: False, FlightStateNotOnGroundError), (lambda: True, SatelliteProviderError)],
    ids=["air", "down"],
)
def test_ac_12_errors_of_the_uploader_are_raised(
    store: TileStore, redrive_clock: FakeClock, counted_tiles: list[str], on_ground: Callable[[], bool], error: type[Exception]
) -> None:
    store.add("f", [("t00", b"x")])
    with Provider() as gone:
        address = gone.url
    with pytest.raises(error):
        build_tile_uploader(Config(address, Settings()), store, on_ground=on_ground).upload_pending_tiles(FLIGHT)
    assert (redrive_clock.slept, counted_tiles, store.statuses()["t00"]) == ([], [], ("pending", 0))


@pytest.mark.req("B-8")
def test_ac_13_a_second_call_sends_only_pending_tiles(store: TileStore, provider: Provider, redrive_clock: FakeClock) -> None:
    provider.refuse = lambda tile, time: "busy" if tile >= "t30" and time == 1 else ""
    uploader = build_uploader(store, provider, 50, Settings(max_in_call_retries=0))
    first = uploader.upload_pending_tiles(FLIGHT)
    assert (first.count("acknowledged"), first.count("pending")) == (30, 20)
    redrive_clock.advance(timedelta(minutes=5))
    # Another process would do the same, because all state is in the table.
    second = build_tile_uploader(Config(provider.url, Settings()), TileStore(store.engine))
    assert second.enumerate_pending_tiles("f") == [f"t{n:02}" for n in range(30, 50)]
    assert second.upload_pending_tiles(FLIGHT).outcome == "success"
    assert provider.received == {f"t{n:02}": 1 if n < 30 else 2 for n in range(50)}
    assert {status for status, _ in store.statuses().values()} == {"uploaded"}


@pytest.mark.req("B-15")
def test_an_outage_of_the_provider_gives_up_only_the_damaged_tile(
    store: TileStore, provider: Provider, redrive_clock: FakeClock
) -> None:
    uploader = build_uploader(store, provider, 40)
    damage(store, "t07")
    provider.refuse = lambda tile, _: "" if tile == "t07" else "overloaded"
    for _ in range(4):
        uploader.upload_pending_tiles(FLIGHT)
    assert store.statuses().pop("t07") == ("upload_giveup", 5)
    assert {row for tile, row in store.statuses().items() if tile != "t07"} == {("pending", 0)}
    provider.refuse = lambda *_: ""
    report = uploader.upload_pending_tiles(FLIGHT)
    assert (report.count("acknowledged"), report.count("giveup"), report.next_retry_at) == (39, 1, None)
    assert report.outcome == "partial"  # the damaged tile never arrived
    assert len(provider.accepted) == 39


@pytest.mark.req("B-15")
def test_damaged_tiles_are_sent_five_times_however_often_the_command_runs(
    store: TileStore, provider: Provider, redrive_clock: FakeClock
) -> None:
    build_uploader(store, provider, 50)
    damage(store, *(f"t{n:02}" for n in range(20)))
    for _ in range(10):  # no state in the process: each run is built again
        fresh = TileStore(store.engine)
        build_tile_uploader(Config(provider.url, Settings()), fresh).upload_pending_tiles(FLIGHT)
    assert provider.received == {f"t{n:02}": 5 if n < 20 else 1 for n in range(50)}
    assert {row for tile, row in store.statuses().items() if tile < "t20"} == {("upload_giveup", 5)}
    assert store.items().reasons(["t00", "t30"]) == {"t00": "422 checksum mismatch"}


@pytest.mark.req("B-15")
def test_an_outage_is_counted_in_the_table_and_ends(store: TileStore, provider: Provider, redrive_clock: FakeClock) -> None:
    build_uploader(store, provider, 12)
    provider.refuse = lambda *_: "overloaded"
    for _ in range(4):
        settings = Settings(max_uncharged_passes=8)
        build_tile_uploader(Config(provider.url, settings), TileStore(store.engine)).upload_pending_tiles(FLIGHT)
    assert set(provider.received.values()) == {8 + 5}
    assert set(store.statuses().values()) == {("upload_giveup", 5)}


def test_the_waits_of_the_program_grow(redrive_clock: FakeClock, capsys: pytest.CaptureFixture[str]) -> None:
    program.main()
    first = redrive_clock.slept[:3]
    assert len(set(first)) == 3
    assert first == sorted(first)
    assert "arrived: 59 of 60" in capsys.readouterr().out


def test_the_program_keeps_its_tiles_in_a_file_on_request(tmp_path: Path, redrive_clock: FakeClock) -> None:
    """The README reopens the damaged tile with the CLI."""
    path = tmp_path / "onboard.db"
    program.main(str(path))
    engine = create_engine(f"sqlite:///{path}")
    assert TileStore(engine).items().reasons(["t017"]).keys() == {"t017"}
    engine.dispose()
    with pytest.raises(SystemExit, match=r"onboard\.db: already exists; remove it or pass another path"):
        program.main(str(path))
