"""Datasets in a sandbox: schedules, retries, outages and killed workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest

from redrive import App, current, journal
from redrive.errors import Again, Blocked, Stop
from redrive.journal import Record
from redrive.partitions import Partition, Sink, row_count
from redrive.partitions.queries import PartitionQueries
from redrive.testing import sandbox
from redrive.testing.app_sandbox import Sandbox

DAY = 24 * 3600


@pytest.fixture
def app() -> App:
    return App("sqlite:///never-opened.db", stores={"raw": {"type": "memory"}})


def dataset_options(**more: Any) -> dict[str, Any]:
    return {"raw": "raw", "customers": ["acme"], "checks": [row_count(min=1)], "cron": "15 2 * * *", **more}


@pytest.fixture
def box(app: App) -> Iterator[Sandbox]:
    with sandbox(app) as made:
        now = made.clock.now()
        made.clock.advance((now.replace(hour=1, minute=0, second=0, microsecond=0) + timedelta(days=1) - now).total_seconds())
        yield made


def key(day: datetime, customer: str = "acme") -> Partition:
    return Partition("crm", customer, "orders", day.date())


def test_a_daily_schedule_extracts_the_day_before(app: App, box: Sandbox) -> None:
    days: list[str] = []
    customers = ["acme"]

    @app.dataset("crm", "orders", **dataset_options(customers=lambda: customers))
    def orders(partition: Partition, out: Sink) -> None:
        days.append(f"{partition.customer_id} {partition.logical_date}")
        out.rows([{"at": "x"}])

    assert box.drain() == 0, "a new dataset does not fire for the time before it"
    today = box.clock.now().date()
    box.clock.advance(2 * 3600)
    assert box.drain() == 1
    customers.append("globex")
    box.clock.advance(2 * DAY)
    assert box.drain() == 4, "nights that nobody was there for are made up for"
    before = [today - timedelta(days=1) + timedelta(days=n) for n in range(3)]
    assert sorted(days) == sorted([f"acme {before[0]}", *(f"{name} {day}" for name in customers for day in before[1:])])
    assert len(list(orders.read("globex", before[1], before[2]).complete().rows())) == 2


@pytest.mark.req("P-8", "P-9")
def test_attempts_are_minutes_and_hours_apart(app: App, box: Sandbox) -> None:
    moments: list[datetime] = []

    @app.dataset("crm", "orders", **dataset_options())
    def orders(partition: Partition, out: Sink) -> None:
        moments.append(box.clock.now())
        assert (current().number, current().max_attempts) == (len(moments), 6)
        if len(moments) < 5:
            raise ConnectionError("no answer")
        out.rows([{"n": 1}])

    box.drain()
    box.clock.advance(2 * 3600)
    assert box.drain() == 5
    waits = [round((after - before).total_seconds()) for before, after in pairwise(moments)]
    for wait, step in zip(waits, (300, 1800, 7200, 7200), strict=True):
        assert abs(wait - step) <= 0.1 * step + 1


def test_a_partition_past_its_age_is_not_retried(app: App, box: Sandbox) -> None:
    @app.dataset("crm", "orders", **dataset_options(max_age=3 * 3600))
    def orders(partition: Partition, out: Sink) -> None:
        out.rows([])

    box.drain()
    day = box.clock.now() - timedelta(days=1)
    box.clock.advance(2 * 3600)
    assert box.drain() == 1, "first tried at 3:00: five minutes later it is older than three hours"
    facts = PartitionQueries(app.ledger).get(key(day))
    assert facts is not None
    assert facts.terminal is not None
    assert facts.terminal.startswith("age")


def test_not_ready_is_retried_and_stop_is_not(app: App, box: Sandbox) -> None:
    tried: Counter[str] = Counter()

    @app.dataset("crm", "orders", **dataset_options(customers=["late", "left"]))
    def orders(partition: Partition, out: Sink) -> None:
        tried[partition.customer_id] += 1
        if partition.customer_id == "left":
            raise Stop("the customer has left")
        if tried["late"] < 10:
            raise Again("the report is not there yet", free=True)
        out.rows([{"n": 1}])

    box.drain()
    day = box.clock.now() - timedelta(days=1)
    box.clock.advance(2 * 3600)
    box.drain()
    assert tried == {"late": 10, "left": 1}
    late, left = PartitionQueries(app.ledger).get(key(day, "late")), PartitionQueries(app.ledger).get(key(day, "left"))
    assert late is not None
    assert left is not None
    assert (late.status, late.attempt_count, late.dispatch_count) == ("success", 1, 10)
    assert (left.status, left.attempt_count, left.terminal is not None) == ("failed", 1, True)


def test_a_source_that_is_down_is_paused_without_attempts(app: App, box: Sandbox) -> None:
    calls: list[datetime] = []

    @app.dataset("crm", "orders", **dataset_options(customers=[f"c-{n}" for n in range(20)]))
    def orders(partition: Partition, out: Sink) -> None:
        calls.append(box.clock.now())
        if len(calls) < 5:
            raise Blocked("the key has expired")
        out.rows([{"n": 1}])

    box.drain()
    day = box.clock.now() - timedelta(days=1)
    box.clock.advance(2 * 3600)
    records: list[Record] = []
    unsubscribe = journal.subscribe(records.append, inline=True)
    box.drain()
    unsubscribe()
    assert len(calls) == 24, "two customers and two probes were refused; then all went well"
    assert [record.kind for record in records if record.kind.endswith("parked")] == ["parked"] * 3 + ["unparked"]
    assert {record.fields["reason"] for record in records if record.kind == "again"} == {"systemic"}
    register = PartitionQueries(app.ledger)
    found = [register.get(key(day, f"c-{n}")) for n in range(20)]
    assert {one.status for one in found if one is not None} == {"success"}
    assert sum(one.attempt_count for one in found if one is not None) == 21, "the first refusal has a verdict"
    runs = [run for n in range(20) for run in register.history(key(day, f"c-{n}"))]
    assert {run.note for run in runs if run.state == "rejected"} == {
        "not charged: 2 customers were refused: Blocked: the key has expired"
    }


def test_a_killed_worker_loses_its_partition(app: App, box: Sandbox) -> None:
    runs: list[str] = []

    @app.dataset("crm", "orders", **dataset_options())
    async def orders(partition: Partition, out: Sink) -> None:
        await asyncio.sleep(0)
        runs.append(out.run_id)
        out.rows([{"run": out.run_id}])

    box.drain()
    day = (box.clock.now() - timedelta(days=1)).date()
    box.clock.advance(2 * 3600)
    box.kill()
    assert box.drain() == 2
    assert list(orders.read("acme", day).complete().rows()) == [{"run": runs[1]}]
    facts = PartitionQueries(app.ledger).get(Partition("crm", "acme", "orders", day))
    assert facts is not None
    assert (facts.attempt_count, facts.dispatch_count) == (1, 2)


def test_a_dataset_with_failing_customers_does_not_block_others(app: App, box: Sandbox) -> None:
    from redrive.partitions.work.runner import ScheduleTask

    def nobody() -> list[str]:
        raise ConnectionError("who knows")

    app.dataset("crm", "broken", **dataset_options(customers=nobody))(lambda partition, out: None)

    @app.dataset("crm", "orders", **dataset_options())
    def orders(partition: Partition, out: Sink) -> None:
        out.rows([{"n": 1}])

    firing = ScheduleTask(app.ledger, list(app.datasets))
    firing.do(box.clock.now())
    box.clock.advance(2 * 3600)
    with pytest.raises(ValueError, match="crm/broken: .*who knows") as raised:
        firing.do(box.clock.now())
    assert raised.value.__notes__ == ["the schedule of crm/broken"]
    fired = {row.source: row for row in PartitionQueries(app.ledger).sources()}
    assert app.ledger.sweeps.list(state="running")[0].act == "fresh", fired


def test_the_day_is_in_the_time_zone_of_the_schedule(app: App, box: Sandbox) -> None:
    days: list[Any] = []

    @app.dataset("crm", "orders", **dataset_options(cron="30 0 * * *", timezone="Pacific/Auckland"))
    def orders(partition: Partition, out: Sink) -> None:
        days.append((partition.logical_date, box.clock.now()))
        out.rows([{"n": 1}])

    box.drain()
    box.clock.advance(DAY)
    box.drain()
    (day, moment), *_ = days
    from zoneinfo import ZoneInfo

    assert moment.tzinfo == timezone.utc
    assert day < moment.astimezone(ZoneInfo("Pacific/Auckland")).date()
