"""TableItems: the states of a table, and its optional columns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, Text, insert, select, update

from redrive.batch import ItemStatus, Report, Settings, TableItems, retrying
from redrive.testing import instant
from tests.conformance.batch.world import TILES, plain_table_items, table_items, tiles

WORDS = MetaData()
QUEUE = Table("theirs", WORDS, Column("id", Integer, primary_key=True), Column("n", Integer), Column("state", Text))
COLUMNS = (Column("id", Text, primary_key=True), Column("n", Integer), Column("state", Text, default="pending"))
BEGINS = Table("begins", WORDS, *COLUMNS)


@pytest.fixture
def words(engine: Engine) -> Any:
    WORDS.drop_all(engine)
    WORDS.create_all(engine)
    yield engine
    WORDS.drop_all(engine)


def fill(engine: Engine, *states: str | None) -> None:
    with engine.begin() as tx:
        tx.execute(insert(QUEUE), [{"id": n, "n": 0, "state": state} for n, state in enumerate(states)])


def queue(engine: Engine, **states: Any) -> TableItems:
    return TableItems(engine, id=QUEUE.c.id, attempts=QUEUE.c.n, status=QUEUE.c.state, **states)


class Sender:
    """Sends the items that are pending in the store."""

    def __init__(self, items: TableItems, ids: list[str]) -> None:
        self.items, self.ids, self.sent = items, ids, list[str]()

    def send_pending(self) -> Report:
        now = sorted(self.items.pending(self.ids))
        self.sent += now
        return Report("success", [ItemStatus(item, "acknowledged") for item in now])

    async def asend(self) -> Report:
        return self.send_pending()


@pytest.mark.req("B-17")
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_unknown_pending_state_is_rejected_at_the_first_call(words: Engine, colour: str) -> None:
    fill(words, "new", "new", "new", "odd")
    sender = Sender(queue(words), ["0", "1", "2", "3"])
    with pytest.raises(ValueError, match="unknown states in state") as refused:
        if colour == "sync":
            retrying(sender, items=sender.items).send_pending()
        else:
            asyncio.run(retrying(sender, items=sender.items, method="asend").asend())
    message = str(refused.value)
    for part in ("theirs", "'new' (3 rows), 'odd' (1 row)", "pending=", "done=", "giveup=", "Nothing was sent"):
        assert part in message
    assert "='new'" not in message  # no guess: accepted rows would be sent again
    assert sender.sent == []
    with pytest.raises(ValueError, match="unknown states"):
        sender.items.pending(["0"])  # and again, until it is set up
    right = Sender(queue(words, pending="new", done="odd"), sender.ids)
    assert retrying(right, items=right.items).send_pending().count("acknowledged") == 3


@pytest.mark.req("B-17")
def test_an_unknown_state_is_rejected_for_a_sender_with_its_own_query(words: Engine) -> None:
    fill(words, "new", None)
    calls: list[str] = []

    class Own:
        def send_pending(self) -> Report:
            calls.append("sent")
            return Report("success", [])

    with pytest.raises(ValueError, match=r"'new' \(1 row\)") as refused:
        retrying(Own(), items=queue(words)).send_pending()
    assert "NULL (1 row)" in str(refused.value)
    assert calls == []


@pytest.mark.req("B-17")
def test_a_row_in_an_unnamed_state_is_rejected(words: Engine) -> None:
    fill(words, "pending", "uploaded", "archived")
    with pytest.raises(ValueError, match=r"'archived' \(1 row\)") as refused:
        queue(words).pending(["0"])
    assert "'uploaded' (1 row)" in str(refused.value)
    with pytest.raises(ValueError, match=r"unknown states in state: 'archived' \(1 row\);"):
        queue(words, done="uploaded").pending(["0"])
    assert queue(words, done=("uploaded", "archived")).pending(["0", "1", "2"]) == {"0"}
    with pytest.raises(ValueError, match="done= must differ"):
        queue(words, done="pending")


@pytest.mark.req("B-17")
def test_a_misspelt_giveup_state_is_rejected_before_it_is_written(words: Engine) -> None:
    fill(words, "pending", "giveup")
    with pytest.raises(ValueError, match=r"'giveup' \(1 row\).*giveup='givup'"):
        queue(words, giveup="givup").pending(["0"])
    with words.begin() as tx:
        tx.execute(insert(BEGINS), [{"id": i, "n": 0, "state": s} for i, s in (("a", "pending"), ("b", "giveup"))])
    begins = TableItems(words, id=BEGINS.c.id, attempts=BEGINS.c.n, status=BEGINS.c.state, giveup="givup")
    with pytest.raises(ValueError, match=r"'giveup' \(1 row\)"):
        begins.pending(["a"])  # also where the column's default is the state of pending=


@pytest.mark.req("B-17")
def test_the_error_lists_every_unknown_state_with_its_rows(words: Engine) -> None:
    fill(words, "neu", *["gesendet"] * 4, *(f"s{n}" for n in range(8)))
    with pytest.raises(ValueError, match="unknown states") as refused:
        queue(words, giveup="givup").pending(["0"])
    for state in ("'gesendet' (4 rows)", "'neu' (1 row)", *(f"'s{n}' (1 row)" for n in range(8))):
        assert state in str(refused.value)


@pytest.mark.req("B-4", "B-17")
def test_an_item_in_a_state_of_its_sender_is_given_up(words: Engine) -> None:
    fill(words, "pending", "uploaded", "pending")
    items = queue(words, done="uploaded")
    items.check()
    with words.begin() as tx:
        tx.execute(update(QUEUE).where(QUEUE.c.id == 0).values(state="uploading"))
    assert items.give_up_many({"0": "x", "1": "x", "2": "x"}) == {"0", "2"}
    assert items.given_up() == {"0": 0, "2": 0}


@pytest.mark.req("B-17")
def test_a_table_with_only_done_rows(words: Engine) -> None:
    fill(words, "uploaded", "uploaded")
    with pytest.raises(ValueError, match=r"'uploaded' \(2 rows\)"):
        queue(words).pending(["0"])
    assert queue(words, done="uploaded").pending(["0"]) == set()


@pytest.mark.req("B-17")
def test_an_empty_table_is_checked_again(words: Engine) -> None:
    items = queue(words)
    assert items.pending(["0"]) == set()
    fill(words, "new")
    with pytest.raises(ValueError, match="unknown states"):
        items.pending(["0"])


@pytest.mark.req("B-4", "B-17")
def test_the_last_reason_is_stored_redacted(engine: Engine) -> None:
    items = table_items(engine)
    assert items.give_up("t0", "422 checksum, token=s3cret") is True
    assert items.give_up("t0", "again") is False
    assert items.give_up_many({"t1": "a", "t2": "b", "t3": "a"}) == {"t1", "t2", "t3"}
    with engine.connect() as connection:
        rows = connection.execute(select(TILES.c.id, TILES.c.why).where(TILES.c.why.is_not(None)))
        found = {row[0]: row[1] for row in rows}
    assert found == {"t0": "422 checksum, token=[redacted]", "t1": "a", "t2": "b", "t3": "a"}
    assert items.reasons(["t1", "t2", "t9"]) == {"t1": "a", "t2": "b"}
    assert plain_table_items(engine).reasons(["t1"]) == {}


def test_a_reason_is_cut_to_the_length_of_its_column(engine: Engine) -> None:
    metadata = MetaData()
    columns = (Column("id", Text, primary_key=True), Column("n", Integer), Column("s", Text), Column("why", String(10)))
    short = Table("short", metadata, *columns)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    with engine.begin() as tx:
        tx.execute(insert(short), [{"id": "a", "n": 0, "s": "pending"}])
    items = TableItems(engine, id=short.c.id, attempts=short.c.n, status=short.c.s, reason=short.c.why)
    assert items.give_up("a", "x" * 50)
    assert items.reasons(["a"]) == {"a": "x" * 10}
    metadata.drop_all(engine)


@pytest.mark.req("B-15")
def test_without_an_uncharged_column_every_rejection_is_charged(engine: Engine) -> None:
    items = plain_table_items(engine)

    class Down:
        def send_pending(self) -> Report:
            return Report(
                "failure", [ItemStatus(item, "rejected", "503") for item in sorted(items.pending([f"t{n}" for n in range(10)]))]
            )

    with instant():
        retrying(Down(), items=items, settings=Settings(max_in_call_retries=0)).send_pending()
        assert {row[1] for row in tiles(engine).values()} == {1}
        with engine.begin() as tx:
            tx.execute(update(TILES).values(attempts=0))
        items = table_items(engine)
        retrying(Down(), items=items, settings=Settings(max_in_call_retries=0)).send_pending()
        assert {row[1] for row in tiles(engine).values()} == {0}


@pytest.mark.req("B-13")
def test_a_reopened_row_has_the_attempts_that_are_left_and_at_least_one(engine: Engine) -> None:
    items = table_items(engine)
    permanent = {"t0": True}

    class Refuses:
        def send_pending(self) -> Report:
            sent = sorted(items.pending(["t0", "t1"]))
            return Report("failure", [ItemStatus(i, "rejected", "410", permanent=permanent.get(i, False)) for i in sent])

    sender = retrying(Refuses(), items=items, settings=Settings(max_in_call_retries=4, max_per_item_attempts=5))
    with instant():
        sender.send_pending()
        assert items.given_up() == {"t0": 1, "t1": 5}
        permanent.clear()
        assert items.reopen_many(["t0", "t1"]) == {"t0", "t1"}
        sender.send_pending()
    assert items.given_up() == {"t0": 5, "t1": 6}


@pytest.mark.req("B-13")
def test_states_are_read_without_ids_that_no_row_can_have(words: Engine) -> None:
    fill(words, "pending", "giveup", None)
    assert queue(words).states(["0", "1", "2", "7", "not a number"]) == {"0": "'pending'", "1": "'giveup'", "2": "NULL"}
    assert queue(words).name == "theirs"
