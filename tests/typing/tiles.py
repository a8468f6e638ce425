"""A sender in batches as a user writes it: `retrying` returns the type of its argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, assert_type, runtime_checkable

from sqlalchemy import Column, Engine, Integer, MetaData, Table, Text, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from redrive import App, RetryPolicy
from redrive.batch import Items, ItemStatus, Report, Settings, TableItems, retrying


class Base(DeclarativeBase): ...


class Tile(Base):
    __tablename__ = "tiles"
    id: Mapped[str] = mapped_column(primary_key=True)
    voting_status: Mapped[str] = mapped_column(default="pending")
    upload_attempts: Mapped[int] = mapped_column(default=0)


@dataclass
class UploadRequest:
    flight_id: str


@runtime_checkable
class TileUploader(Protocol):
    def send_pending(self, request: UploadRequest) -> Report: ...
    def confirm_flight_state(self) -> bool: ...


class HttpTileUploader:
    def __init__(self, engine: Engine) -> None: ...
    def send_pending(self, request: UploadRequest) -> Report:
        return Report("partial", [ItemStatus("t1", "acknowledged"), ItemStatus("t2", "rejected", "checksum")])

    def confirm_flight_state(self) -> bool:
        return True


class OwnUploader:
    def upload(self, only: list[str] | None = None) -> dict[str, str]:
        return {}


def to_report(own: dict[str, str]) -> Report:
    return Report("success" if not own else "failure", [ItemStatus(tile, "rejected", why) for tile, why in own.items()])


engine = create_engine("postgresql+psycopg://localhost/tiles")
app = App("sqlite://")
items = TableItems(engine, id=Tile.id, attempts=Tile.upload_attempts, status=Tile.voting_status, giveup="upload_giveup")
uploader: TileUploader = retrying(
    HttpTileUploader(engine),
    items=items,
    retry=RetryPolicy(max_attempts=4, backoff_base=2, backoff_max=60, jitter=0),
    item_attempts=5,
)


@app.command("tiles.later", key="tiles::{request.flight_id}:upload:v1")
def later(request: UploadRequest) -> None: ...


async def main() -> None:
    same = retrying(HttpTileUploader(engine), items=app.items("tiles"), settings=Settings.from_env("C11"), spill=later)
    assert_type(same, HttpTileUploader)
    report = same.send_pending(UploadRequest("flight-7"))
    assert_type(report, Report)
    assert_type(report.count("giveup"), int)
    store: Items = items
    assert_type(store.increment("t1"), int)
    ItemStatus("t1", "rejected", "410 gone", permanent=True)
    ItemStatus("t1", "rejected", "no route", transient=True)
    own = retrying(OwnUploader(), items=app.items("own"), method="upload", to_report=to_report, split="only")
    assert_type(own, OwnUploader)
    table = Table("plain", MetaData(), Column("id", Text), Column("n", Integer), Column("s", Text))
    TableItems(engine, id=table.c.id, attempts=table.c.n, status=table.c.s)
    same.send_pending("flight-7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    retrying(HttpTileUploader(engine))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    retrying(HttpTileUploader(engine), items=engine)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ItemStatus("t1", "refused")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Report("partly", [])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    report.outcome = "success"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
