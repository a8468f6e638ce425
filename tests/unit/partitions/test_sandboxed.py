"""Datasets in a sandbox: its clock advances to delayed and paused partitions."""

from __future__ import annotations

from typing import Any

from redrive import App
from redrive.errors import Blocked
from redrive.ops import Operator
from redrive.partitions import Partition, Sink
from redrive.partitions.queries import PartitionQueries
from redrive.testing import sandbox

DAY = "2025-12-29"


def build_app(fn: Any, **told: Any) -> tuple[App, Operator]:
    app = App(stores={"raw": {"type": "memory"}})
    app.dataset("crm", "orders", raw="raw", checks=[], customers=["a", "b", "c"], max_age=None, **told)(fn)
    return app, Operator(app, actor="ann")


def test_a_rate_limits_the_sandbox_clock() -> None:
    def orders(partition: Partition, out: Sink) -> None:
        out.rows([{"n": 1}])

    app, ann = build_app(orders, rate=0.1)
    with sandbox(app) as box:
        began = box.clock.now()
        ann.apply(ann.backfills.plan("crm/orders", DAY, DAY), because="new")
        assert box.drain() == 3
        assert 20 <= (box.clock.now() - began).total_seconds() < 30, "the first at once, each of the others ten seconds later"


def test_a_probe_without_a_response_is_not_charged() -> None:
    answers: list[Exception | None] = [
        Blocked("no key", systemic=True),
        ConnectionError("no answer"),
        TimeoutError("no answer"),
        None,
        None,
        None,
    ]

    def orders(partition: Partition, out: Sink) -> None:
        if (error := answers.pop(0)) is not None:
            raise error
        out.rows([{"n": 1}])

    app, ann = build_app(orders)
    with sandbox(app) as box:
        ann.apply(ann.backfills.plan("crm/orders", DAY, DAY), because="new")
        assert box.drain() == 6
        register = PartitionQueries(app.ledger)
        assert register.counts()["crm", "orders"] == {"success": 3}
        keys = [Partition("crm", customer, "orders", DAY) for customer in "abc"]  # type: ignore[arg-type]  # text is a day too
        runs = [run for key in keys for run in register.history(key)]
        assert sorted(run.state for run in runs) == ["accepted"] * 3 + ["returned"] * 3
        assert not register.sources()[0].paused
