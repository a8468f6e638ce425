"""A process crashes between any two durable effects of a batch. Later calls lose and double nothing."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, select

from redrive import App
from redrive.ledger.db.tables import item
from redrive.ledger.failpoint import BATCH_POINTS
from redrive.ops.operator import Operator
from tests.conformance.batch.world import dies, tiles, upload

POISON = ("t3", "t7")
LOOP = [point for point in BATCH_POINTS if point.startswith("batch.")]
COUNTS = ["item.increment.before_commit", "item.increment.after_commit"]
ENDS = ["item.give_up.before_commit", "item.give_up.after_commit"]
ARRIVED = ["item.acknowledge.before_commit", "item.acknowledge.after_commit"]
DEATHS = [
    *(("table", f"{at}:{nth}:kill") for at in LOOP if at != "batch.given_up" for nth in (1, 3)),
    ("table", "batch.given_up:1:kill"),
    *(("ledger", f"{at}:{nth}:kill") for at in (*LOOP[:2], *COUNTS) for nth in (1, 3)),
    *(("ledger", f"{at}:1:kill") for at in (LOOP[2], *ENDS)),
    *(("table", f"inside.sent:{nth}") for nth in (1, 5, 11)),
    ("ledger", "inside.sent:4"),
]


def test_every_crash_point_of_a_batch_is_reached() -> None:
    reached = {at.partition(":")[0] for _, at in DEATHS} | set(ARRIVED)
    others = {f"item.{verb}.{step}" for verb in ("spare", "reopen") for step in ("before_commit", "after_commit")}
    assert {point for point in BATCH_POINTS if point not in others} <= reached


def attempts(app: App, engine: Engine, store: str) -> dict[str, int]:
    if store == "table":
        return {tile: row[1] for tile, row in tiles(engine).items()}
    with app.ledger.reading() as connection:
        return {row.item: row.attempts for row in connection.execute(select(item).where(item.c.batch == "tiles"))}


@pytest.mark.req("B-4", "B-8", "B-10")
@pytest.mark.parametrize(("store", "at"), DEATHS, ids=str)
def test_after_a_crash_the_next_call_finishes(app: App, url: str, engine: Engine, store: str, at: str) -> None:
    assert dies(at, upload, url, store, POISON, 3) == -9
    before = attempts(app, engine, store)
    assert all(count <= 5 for count in before.values())
    assert {tile for tile, count in before.items() if count} <= set(POISON)
    # After the next process, good items were accepted once, and bad ones are given up.
    upload(url, store, POISON, 3)
    found = tiles(engine)
    for tile, (status, _, sent) in found.items():
        if tile in POISON:
            assert sent <= 5 + 1  # the process may have crashed before it counted one pass
        else:
            assert (status, sent) == ("uploaded", 1)
    counts = attempts(app, engine, store)
    gone = {tile for tile, row in found.items() if row[0] == "giveup"}
    if store == "ledger":
        gone = {one.item for one in Operator(app, actor="ann").batches.given_up()}
    assert gone == set(POISON)
    assert {tile: count for tile, count in counts.items() if count} == dict.fromkeys(POISON, counts["t3"])
    assert 5 <= counts["t3"] <= 6  # counted one more time if it crashed between the last count and the give-up


@pytest.mark.parametrize("at", ARRIVED)
def test_a_crash_during_an_acknowledgement(app: App, url: str, engine: Engine, at: str) -> None:
    app.items("tiles").increment_many(["t1", "t2"])
    assert dies(f"{at}:1:kill", upload, url, "ledger", ()) == -9
    assert {row[0] for row in tiles(engine).values()} == {"uploaded"}
    waiting = Operator(app, actor="ann").batches.find()[0].waiting
    assert waiting == (2 if at.endswith("before_commit") else 0)  # the next acknowledgement resets them
    assert app.items("tiles").acknowledge_many(["t1", "t2"]) == waiting


def spare(url: str) -> None:
    with App(url) as app:
        app.items("tiles").spare_many(["t1", "t2"])


def reopen(url: str) -> None:
    with App(url) as app:
        bob = Operator(app, actor="bob")
        for _ in bob.batches.reopen(bob.batches.plan_reopen("tiles", items=["t1", "t2"]), because="mended"):
            pass


@pytest.mark.req("B-13")
@pytest.mark.parametrize("step", ["before_commit", "after_commit"])
def test_spare_and_reopen_are_atomic(app: App, url: str, step: str) -> None:
    done = int(step == "after_commit")
    items = app.items("tiles")
    assert dies(f"item.spare.{step}:1:kill", spare, url) == -9
    assert items.spare_many(["t1", "t2"]) == {"t1": 1 + done, "t2": 1 + done}
    items.give_up_many({"t1": "x", "t2": "x"})
    assert dies(f"item.reopen.{step}:1:kill", reopen, url) == -9
    assert len(items.pending(["t1", "t2"])) == 2 * done
    assert len(app.ledger.audit()) == done  # each with its entry in the audit log


@pytest.mark.req("B-8")
@pytest.mark.parametrize("store", ["table", "ledger"])
def test_a_call_in_another_process_sends_only_pending_items(url: str, engine: Engine, store: str) -> None:
    from tests.conformance.batch.world import FORKS

    for _ in range(2):
        child = FORKS.Process(target=upload, args=(url, store, POISON, 1, 100))
        child.start()
        child.join(60)
        assert child.exitcode == 0
    assert {tile: row[2] for tile, row in tiles(engine).items()} == {f"t{n}": 8 if f"t{n}" in POISON else 1 for n in range(10)}
