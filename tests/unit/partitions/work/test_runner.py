"""The runner, one turn at a time: leases, releases, and an offline ledger."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from redrive import App, journal
from redrive.journal import Record
from redrive.journal.sinks.logging import format_record
from redrive.ledger.db.partition_tables import work
from redrive.partitions import Partition, Sink
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.model import Release
from redrive.partitions.queries import PartitionQueries
from tests.ledgers import sqlite_ledger
from tests.partition_runner import SteppedRunner

KEY = Partition("crm", "acme", "orders", "2026-01-31")  # type: ignore[arg-type]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(sqlite_ledger(tmp_path), stores={"raw": {"type": "memory"}}) as made:
        yield made


def runner(app: App, fn: Any, **more: Any) -> SteppedRunner:
    app.dataset("crm", "orders", raw="raw", customers=["acme"], checks=[], max_age=None)(fn)
    extractions = list(app.datasets)
    ControlPlane(app.ledger, [extractions[0].limits]).backfill(
        Grid.of("crm", "orders", ["acme"], KEY.logical_date), actor="ann", because="new"
    )
    return SteppedRunner(app.ledger, extractions, max_running=2, **more)


def until_result(one: SteppedRunner) -> None:
    deadline = time.monotonic() + 60
    while not one.has_results:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def now() -> datetime:
    return datetime.now(timezone.utc)


def wait_for_end(one: SteppedRunner) -> None:
    deadline = time.monotonic() + 60
    while one.running:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        one.turn(now())


def states(app: App) -> list[str]:
    return [run.state for run in PartitionQueries(app.ledger).history(KEY)]


def write(partition: Partition, out: Sink) -> None:
    out.rows([{"n": 1}])


def test_leases_are_released_if_no_thread_can_start(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    one = runner(app, write)

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            one.turn(now())
    assert one.running == 0
    one.turn(now())
    wait_for_end(one)
    assert states(app) == ["accepted", "returned"]


def test_a_verdict_is_kept_while_the_ledger_is_offline(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    one = runner(app, write)
    one.turn(now())
    with monkeypatch.context() as patched:
        patched.setattr(app.ledger.connections.write, "use", lambda: (_ for _ in ()).throw(ConnectionError("away")))
        until_result(one)
        with pytest.raises(ConnectionError, match="away"):
            one.turn(now())
    assert one.running == 1, "it keeps its place, and is written later"
    wait_for_end(one)
    assert states(app) == ["accepted"]


def test_a_lost_lease_writes_nothing_more(app: App) -> None:
    gate, began = threading.Event(), threading.Event()

    def slow(partition: Partition, out: Sink) -> None:
        began.set()
        gate.wait(30)
        out.rows([{"n": 1}])

    one = runner(app, slow, lease_seconds=0.000001)
    one.turn(now())
    assert began.wait(30)
    with app.ledger.connections.write.use() as session, session.transaction("partition.reap"):
        session.core.execute(update(work).values(attempt_no=work.c.attempt_no + 1))
    one.turn(now())
    gate.set()
    wait_for_end(one)
    assert not list(app.stores.get_store("raw").files())
    assert states(app) == ["leased"], "its verdict was never said: somebody else has the partition"


def test_a_partition_that_is_too_old_is_logged_when_it_gives_up(app: App) -> None:
    day = datetime.now(timezone.utc).date() - timedelta(days=1)
    app.dataset("crm", "orders", raw="raw", customers=["acme"], checks=[], max_age=1e-6)(write)
    extractions = list(app.datasets)
    control = ControlPlane(app.ledger, [extractions[0].limits])
    assert control.enqueue_scheduled("crm", "orders", now(), ["acme"], [day], cron="x")
    (lease,) = control.claim(1, worker="w")
    control.release_uncharged([Release(lease, "not_ready", after=0)])
    records: list[Record] = []
    unsubscribe = journal.subscribe(records.append, inline=True)
    SteppedRunner(app.ledger, extractions, max_running=2).turn(now())
    unsubscribe()
    (told,) = [one for one in records if one.kind == "giveup"]
    assert (told.fields["customer_id"], told.fields["logical_date"], told.fields["reason"]) == ("acme", day.isoformat(), "age")
    assert format_record(told).startswith(f"crm/acme/orders/{day}: gave up: too old: no retries after ")
