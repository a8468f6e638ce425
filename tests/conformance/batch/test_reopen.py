"""Batches as an operator sees them, and the reopening of given-up items."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.ops.operator import Operator

SECRET = "hunter2-s3cret"


@pytest.fixture
def ann(app: App) -> Operator:
    items = app.items("tiles")
    for _ in range(5):
        items.increment_many(["bad", "worse"])
    items.increment("slow")
    items.increment("fine")
    items.acknowledge_many(["fine"])
    items.give_up_many({"bad": f"checksum, password={SECRET}", "worse": "truncated 100%"})
    app.items("other").give_up("x", "odd")
    return Operator(app, actor="ann")


def test_batch_summaries(ann: Operator) -> None:
    other, tiles = ann.batches.find()
    assert (tiles.name, tiles.waiting, tiles.given_up, tiles.acknowledged, tiles.rejections) == ("tiles", 1, 2, 1, 12)
    assert (other.name, other.given_up, other.waiting) == ("other", 1, 0)


def test_given_up_items(ann: Operator) -> None:
    assert {(one.batch, one.item, one.attempts) for one in ann.batches.given_up()} == {
        ("tiles", "bad", 5),
        ("tiles", "worse", 5),
        ("other", "x", 0),
    }
    assert [one.item for one in ann.batches.given_up(batch="tiles", reason="TRUNCATED 100%")] == ["worse"]
    assert [one.item for one in ann.batches.given_up(limit=1)] != []
    assert SECRET not in str(ann.batches.given_up())


@pytest.mark.req("B-13")
def test_a_reopened_item_has_all_attempts(ann: Operator, app: App) -> None:
    items = app.items("tiles")
    plan = ann.batches.plan_reopen("tiles", items=["bad", "slow", "nowhere"])
    assert (plan.items, plan.count, set(plan.skipped)) == (("bad",), 1, {"slow", "nowhere"})
    assert ann.audit.find() == []  # a plan changes nothing
    (step,) = ann.batches.reopen(plan, because="the tile was rendered anew")
    assert step.done == ("bad",)
    assert items.pending(["bad", "worse"]) == {"bad"}
    assert items.increment("bad") == 1
    (entry,) = ann.audit.find()
    assert (entry.actor, entry.action, entry.because) == ("ann", "batch.reopen", "the tile was rendered anew")
    assert entry.what == {"batch": "tiles", "items": ["bad"]}
    (again,) = ann.batches.reopen(plan, because="twice")
    assert (again.done, again.skipped) == ((), {"bad": "it is no longer given up"})
    assert len(ann.audit.find()) == 1
    items.give_up("bad", "still")
    (one,) = ann.batches.given_up(reason="still")
    assert (one.attempts, one.rejections, one.reopened) == (1, 6, 1)


@pytest.mark.req("B-13")
def test_reopening_needs_a_selection_and_a_reason(ann: Operator) -> None:
    with pytest.raises(ValueError, match="no items selected"):
        ann.batches.plan_reopen("tiles")
    plan = ann.batches.plan_reopen("tiles", reason="checksum")
    with pytest.raises(ValueError, match="because= must say why"):
        ann.batches.reopen(plan, because=" ")
    assert len(ann.batches.given_up()) == 3


def test_many_items_are_reopened_in_steps(app: App) -> None:
    items = app.items("many")
    ids = [f"t{n:03}" for n in range(250)]
    items.give_up_many(dict.fromkeys(ids, "outage"))
    ann = Operator(app, actor="ann")
    cut = ann.batches.plan_reopen("many", reason="outage")
    assert (cut.count, cut.more, cut.matched) == (100, True, 250)
    plan = ann.batches.plan_reopen("many", reason="outage", limit=1000)
    assert (plan.count, plan.more, plan.reasons) == (250, False, {"outage": 250})
    assert [len(step.done) for step in ann.batches.reopen(plan, because="it was an outage")] == [100, 100, 50]
    assert len(ann.audit.find()) == 3
    assert items.pending(ids) == set(ids)


def test_the_overview_counts_pending_items_of_batches(app: App) -> None:
    ann = Operator(app, actor="ann")
    assert ann.overview.summary().pending_items == {}
    tiles, frames = app.items("tiles"), app.items("frames")
    tiles.increment_many([f"t{n}" for n in range(6)])
    frames.increment_many(["f1", "f2", "f3"])
    frames.acknowledge_many(["f1"])
    frames.give_up("f2", "410 gone")
    report = ann.overview.summary()
    assert report.pending_items == {"frames": 1, "tiles": 6}
    assert report.pending_items_text == "7 items rejected and sent again by the next call (6 tiles, 1 frames)"
    tiles.increment_many([f"u{n}" for n in range(1000)])
    assert ann.overview.summary().pending_items_text.startswith("1,000+ items rejected")


def test_overview_and_doctor_report_many_items_given_up(app: App) -> None:
    ann = Operator(app, actor="ann")
    items = app.items("tiles")
    items.give_up_many({f"t{n}": "x" for n in range(9)})
    assert not [one for one in ann.health.check().findings if one.name == "items given up"]
    items.give_up("t9", "x")
    (found,) = [one for one in ann.health.check().findings if one.name == "items given up"]
    assert (found.severity, found.count, found.mend) == ("warning", 10, "redrive batch giveups --since 1h")
    assert found.says.startswith("Batch items: 10 given up in the last hour (10 tiles)")
    assert found in ann.overview.summary().findings
    items.give_up_many({f"u{n}": "x" for n in range(1000)})
    (bounded,) = [one for one in ann.overview.summary().findings if one.name == "items given up"]
    assert bounded.says.startswith("Batch items: 1,000+ given up in the last hour (1,000 tiles)")
