"""The stores pass the conformance suite, and each keeps its own promises."""

from __future__ import annotations

import enum
import re
import threading
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, event, insert, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from redrive import App
from redrive.batch import Items, TableItems
from redrive.batch.store.protocol import AcknowledgingItems, ManyItems, SparingItems
from redrive.ledger.db.tables import item
from redrive.testing import ItemsConformance
from tests.conformance.batch.world import METADATA, TILES, add_tiles, engine_at, plain_table_items, table_items, tiles


@pytest.mark.req("B-10", "B-17")
class TestTheLedgersItems(ItemsConformance):
    @pytest.fixture
    def items(self, app: App) -> Items:
        return app.items("tiles")

    @pytest.fixture
    def second_items(self, url: str) -> Iterator[Items]:
        with App(url) as other:
            yield other.items("tiles")

    @pytest.fixture
    def item_ids(self) -> list[str]:
        return [f"t{n}" for n in range(10)]


@pytest.mark.req("B-10", "B-17")
class TestATableOfTheUsersOwn(ItemsConformance):
    @pytest.fixture
    def items(self, engine: Engine) -> Items:
        return table_items(engine)

    @pytest.fixture
    def second_items(self, url: str, items: Items) -> Iterator[Items]:
        other = engine_at(url)
        yield table_items(other)
        other.dispose()

    @pytest.fixture
    def item_ids(self) -> list[str]:
        return [f"t{n}" for n in range(10)]

    @pytest.fixture
    def unknown_id(self) -> str:
        return "nowhere"


@pytest.mark.req("B-10", "B-17")
class TestATableWithThreeColumns(ItemsConformance):
    @pytest.fixture
    def items(self, engine: Engine) -> Items:
        return plain_table_items(engine)

    @pytest.fixture
    def item_ids(self) -> list[str]:
        return [f"t{n}" for n in range(10)]


class OneByOne:
    """A store with only the required methods."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.gone: set[str] = set()
        self.lock = threading.Lock()

    def increment(self, item_id: str, /) -> int:
        with self.lock:
            self.counts[item_id] = self.counts.get(item_id, 0) + 1
            return self.counts[item_id]

    def give_up(self, item_id: str, reason: str, /) -> bool:
        with self.lock:
            new = item_id not in self.gone
            self.gone.add(item_id)
            return new

    def pending(self, among: Any, /) -> set[str]:
        return set(among) - self.gone


@pytest.mark.req("B-17")
class TestAStoreOfOnesOwn(ItemsConformance):
    @pytest.fixture
    def items(self) -> Items:
        return OneByOne()

    @pytest.fixture
    def item_ids(self) -> list[str]:
        return [f"t{n}" for n in range(10)]


@pytest.mark.req("B-17")
def test_the_suite_finds_a_broken_store() -> None:
    class Forgetful(OneByOne):
        def give_up(self, item_id: str, reason: str, /) -> bool:
            return True

    class InTheProcess(OneByOne):
        """Counts uncharged rejections where no other process sees them."""

        def __init__(self, shared: dict[str, int]) -> None:
            super().__init__()
            self.counts, self.spared = shared, dict[str, int]()

        def spare_many(self, item_ids: Collection[str], /) -> dict[str, int]:
            self.spared |= {item_id: self.spared.get(item_id, 0) + 1 for item_id in item_ids}
            return {item_id: self.spared[item_id] for item_id in item_ids}

    suite, ids = ItemsConformance(), [f"t{n}" for n in range(10)]
    with pytest.raises(AssertionError):
        suite.test_giving_up_is_forward_only(Forgetful(), ids)
    shared: dict[str, int] = {}
    with pytest.raises(AssertionError):
        suite.test_counts_are_in_the_store_and_not_in_the_process(InTheProcess(shared), InTheProcess(shared), ids)


@contextmanager
def statements(engine: Engine) -> Iterator[list[str]]:
    """The statements that are sent to the database."""
    seen: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(" ".join(statement.split()))

    event.listen(engine, "before_cursor_execute", hear)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", hear)


@pytest.mark.req("B-10")
def test_an_increment_is_one_update_returning(engine: Engine) -> None:
    items = table_items(engine)
    with statements(engine) as seen:
        assert items.increment("t2") == 1
    assert len(seen) == 1
    assert "UPDATE tiles SET attempts=" in seen[0]  # on Postgres after the lock of the row
    assert re.search(r" RETURNING (tiles\.)?id, (tiles\.)?attempts$", seen[0])
    with statements(engine) as seen:
        items.increment_many([f"t{n}" for n in range(10)])
        items.give_up_many({f"t{n}": "x" for n in range(10)})
    assert len(seen) == 2
    assert all("UPDATE tiles" in one and "RETURNING" in one for one in seen)


@pytest.mark.req("B-10")
def test_increments_of_different_items_do_not_block_each_other(postgres_ledger: str) -> None:
    engine = engine_at(postgres_ledger)
    METADATA.drop_all(engine)
    METADATA.create_all(engine)
    add_tiles(engine, 3)
    items = table_items(engine)
    with engine.begin() as other:
        other.execute(update(TILES).where(TILES.c.id == "t0").values(attempts=7))  # and holds the row's lock
        assert items.increment("t1") == 1
        assert items.increment_many(["t1", "t2"]) == {"t1": 2, "t2": 1}
    assert items.increment("t0") == 8
    METADATA.drop_all(engine)
    engine.dispose()


@pytest.mark.req("B-4")
def test_an_acknowledged_item_is_not_given_up(engine: Engine) -> None:
    items = table_items(engine)
    with engine.begin() as tx:
        tx.execute(update(TILES).where(TILES.c.id == "t0").values(status="uploaded"))
    assert items.give_up("t0", "late") is False
    assert tiles(engine)["t0"][0] == "uploaded"
    assert items.pending(["t0", "t1"]) == {"t1"}


class Base(DeclarativeBase): ...


class Voting(enum.Enum):
    PENDING = "pending"
    TRUSTED = "trusted"
    GIVEUP = "upload_giveup"


class Numbered(Base):
    __tablename__ = "numbered"
    id: Mapped[int] = mapped_column(primary_key=True)
    tries: Mapped[int | None]
    voting: Mapped[Voting]


class Named(Base):
    __tablename__ = "named"
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    tries: Mapped[int] = mapped_column(default=0)
    voting: Mapped[str] = mapped_column(default="pending")


@pytest.mark.req("B-17")
def test_mapped_classes_with_integer_ids_and_enum_states(engine: Engine) -> None:
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    first = uuid.uuid4()
    with engine.begin() as tx:
        rows = [(1, None, Voting.PENDING), (2, 4, Voting.TRUSTED), (3, 0, Voting.GIVEUP)]
        tx.execute(insert(Numbered), [dict(zip(("id", "tries", "voting"), row, strict=True)) for row in rows])
        tx.execute(insert(Named), [{"id": first, "tries": 0, "voting": "pending"}])
    may = (Voting.PENDING, Voting.TRUSTED)
    items = TableItems(engine, id=Numbered.id, attempts=Numbered.tries, status=Numbered.voting, pending=may, giveup=Voting.GIVEUP)
    assert items.increment_many(["1", "2"]) == {"1": 1, "2": 5}
    assert items.pending(["1", "2", "3"]) == {"1", "2"}
    assert (items.give_up("2", "x"), items.give_up("3", "x")) == (True, False)
    with pytest.raises(KeyError, match="one"):
        items.increment("one")
    named = TableItems(engine, id=Named.id, attempts=Named.tries, status=Named.voting)
    assert named.increment(str(first)) == 1
    assert named.pending([str(first)]) == {str(first)}
    with engine.connect() as connection:
        assert connection.execute(select(Numbered.voting).where(Numbered.id == 2)).scalar_one() is Voting.GIVEUP
    Base.metadata.drop_all(engine)


def test_thousands_of_items_in_one_call(engine: Engine) -> None:
    with engine.begin() as tx:
        tx.execute(insert(TILES), [{"id": f"x{n}", "status": "pending", "attempts": 0} for n in range(2500)])
    items = table_items(engine)
    ids = [f"x{n}" for n in range(2500)]
    assert set(items.increment_many(ids).values()) == {1}
    with pytest.raises(KeyError, match="nowhere"):
        items.increment_many([*ids, "nowhere"])
    assert set(items.increment_many(ids).values()) == {2}  # all or none: this one did not count
    assert len(items.give_up_many(dict.fromkeys(ids, "x"))) == 2500
    assert items.pending([*ids, "t0"]) == {"t0"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "id"}, "id= is a column of a table"),
        ({"status": item.c.status}, "columns of one table"),
        ({"giveup": "pending"}, "must differ"),
        ({"engine": "sqlite://"}, "TableItems takes an Engine"),
    ],
)
def test_invalid_columns_are_rejected(change: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {"id": TILES.c.id, "attempts": TILES.c.attempts, "status": TILES.c.status}
    given = right | change
    with pytest.raises((TypeError, ValueError), match=message):
        TableItems(given.pop("engine", sqlalchemy.create_engine("sqlite://")), **given)


def test_a_database_without_returning_is_rejected() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    engine.dialect.update_returning = False
    with pytest.raises(TypeError, match="needs UPDATE ... RETURNING: SQLite 3.35, or Postgres; not this sqlite"):
        table_items(engine)


def test_an_acknowledgement_resets_the_counts(app: App) -> None:
    items = app.items("tiles")
    assert isinstance(items, ManyItems)
    assert isinstance(items, SparingItems)
    assert isinstance(items, AcknowledgingItems)
    assert items.increment_many(["a", "b"]) == {"a": 1, "b": 1}
    assert items.acknowledge_many(["a", "never rejected"]) == 1
    assert items.increment("a") == 1  # rejected again, in another batch with the same name
    assert items.spare_many(["b", "c"]) == {"b": 1, "c": 1}
    assert items.spare_many(["c"]) == {"c": 2}
    assert app.items("other").increment("a") == 1
    with app.ledger.reading() as connection:
        found = connection.execute(select(item.c.attempts).where(item.c.batch == "tiles", item.c.item == "a")).scalar_one()
    assert found == 2  # the counter itself only grows


def test_more_open_items_than_are_fetched(app: App) -> None:
    items = app.items("tiles")
    ids = [f"t{n}" for n in range(1500)]
    items.increment_many(ids)
    assert items.acknowledge_many(ids[:700]) == 700
    assert items.acknowledge_many(ids) == 800


@pytest.mark.parametrize("name", ["", "a\nb", 7, "x" * 300])
def test_an_invalid_batch_name_is_rejected(name: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="the name of the items must"):
        App("sqlite://").items(name)


def test_an_invalid_item_id_is_rejected(app: App) -> None:
    with pytest.raises(ValueError, match="an item's id must"):
        app.items("tiles").increment("a\x00b")
