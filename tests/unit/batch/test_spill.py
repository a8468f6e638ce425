"""A call with pending items is enqueued as a durable command."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from redrive import Again, App
from redrive.batch import ItemStatus, Report, retrying
from redrive.journal import Ring
from redrive.testing import FakeClock, instant, sandbox
from tests.unit.batch.world import AsyncSender, Script, Sender, Store, partial, success


class Command:
    """A command in memory."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.due: datetime | None = None
        self.left: list[tuple[Any, ...]] = []

    def using(self, *, due: datetime) -> Self:
        self.due = due
        return self

    def submit(self, *args: Any, **kwargs: Any) -> str:
        if self.error is not None:
            raise self.error
        self.left.append((*args, kwargs))
        return "j-1"


def test_pending_items_are_enqueued_as_a_job(redrive_clock: FakeClock, redrive_journal: Ring) -> None:
    command = Command()
    report = retrying(Script(partial(a="", b="no")), items=Store(), spill=command).send_pending("f-1", fast=True)
    assert (report.job_id, report.outcome) == ("j-1", "partial")
    assert command.left == [("f-1", {"fast": True})]
    assert command.due == report.next_retry_at
    (record,) = [record for record in redrive_journal.records if record.kind == "spilled"]
    assert (record.fields["job_id"], record.fields["retry_at"]) == ("j-1", report.next_retry_at)


@pytest.mark.req("B-2", "B-6")
def test_items_of_a_first_failure_are_enqueued_as_a_job(redrive_clock: FakeClock) -> None:
    command = Command()
    unsent = Report("failure", [ItemStatus("a", "pending", "no route")])
    report = retrying(Script(unsent), items=Store(), spill=command).send_pending("f-1")
    assert (report.job_id, report.outcome, report.retry_count) == ("j-1", "failure", 0)
    assert command.left == [("f-1", {})]
    assert command.due == report.next_retry_at == redrive_clock.now() + timedelta(seconds=60)


def test_async_spill_uses_asubmit_or_a_thread(redrive_clock: FakeClock) -> None:
    command = Command()
    store = Store()
    inner = AsyncSender(store, ["a", "b"], lambda item, _: "no" if item == "b" else "")
    assert asyncio.run(retrying(inner, items=store, spill=command).send_pending("f-1")).job_id == "j-1"

    class Both(Command):
        async def asubmit(self, *args: Any, **kwargs: Any) -> str:
            return "j-2"

    assert asyncio.run(retrying(inner, items=Store(), spill=Both()).send_pending("f-1")).job_id == "j-2"
    broken = Command(OSError("down"))
    report = asyncio.run(retrying(inner, items=Store(), spill=broken).send_pending("f-1"))
    assert (report.job_id, report.count("pending")) == (None, 1)


def test_no_job_if_no_item_is_pending(redrive_clock: FakeClock) -> None:
    command = Command()
    assert retrying(Script(partial(a="", b="no"), success("b")), items=Store(), spill=command).send_pending().job_id is None
    assert retrying(Script(success("a")), items=Store(), spill=command).send_pending().job_id is None
    gone = Store(counts={"b": 4})
    assert retrying(Script(partial(a="", b="no")), items=gone, spill=command).send_pending().job_id is None
    assert command.left == []


def test_report_is_returned_if_the_spill_fails(redrive_clock: FakeClock, redrive_journal: Ring) -> None:
    command = Command(RuntimeError("no database, password=hunter2"))
    report = retrying(Script(partial(a="", b="no")), items=Store(), spill=command).send_pending()
    assert (report.job_id, report.outcome) == (None, "partial")
    (record,) = [record for record in redrive_journal.records if record.kind == "spill_failed"]
    assert record.fields["error"] == "no database, password=[redacted]"


@pytest.mark.parametrize("kind", [Sender, AsyncSender])
def test_spill_to_a_command_of_an_app(kind: type, tmp_path: Path, redrive_clock: FakeClock) -> None:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}") as app:

        @app.command("tiles.later", key="tiles::{flight}:upload:v1")
        def later(flight: str) -> None: ...

        store = Store()
        inner = kind(store, ["a", "b"], lambda item, _: "no" if item == "b" else "")
        sender = retrying(inner, items=store, item_attempts=100, spill=later)
        report = asyncio.run(sender.send_pending("f-1")) if kind is AsyncSender else sender.send_pending("f-1")
        assert report.job_id is not None
        job = app.ledger.get(int(report.job_id))
        assert job is not None
        assert (job.kind, job.shown) == ("tiles.later", "queued")
        assert job.due_at == report.next_retry_at


@pytest.mark.parametrize("kind", [Sender, AsyncSender])
def test_a_key_whose_job_is_done_is_reported_and_no_job_is_named(kind: type, tmp_path: Path, redrive_journal: Ring) -> None:
    app = App(f"sqlite:///{tmp_path / 'never.db'}")

    @app.command("tiles.later", key="tiles::{flight}:upload:v1")
    def later(flight: str) -> None: ...

    store = Store()
    inner = kind(store, ["a", "b"], lambda item, _: "no" if item == "b" else "")
    sender = retrying(inner, items=store, item_attempts=100, spill=later)

    def send() -> Report:
        sent = sender.send_pending("f-1")
        report: Report = asyncio.run(sent) if kind is AsyncSender else sent
        return report

    with sandbox(app) as box:
        assert send().job_id == send().job_id, "one job, still queued"
        box.drain()
        assert send().job_id is None
    (record,) = [record for record in redrive_journal.records if record.kind == "spill_failed"]
    assert "with the job key 'tiles::f-1:upload:v1' is done" in record.fields["error"]


def test_the_spilled_job_sends_the_rest_and_spills_nothing(tmp_path: Path) -> None:
    """A worker runs the spilled job on a clock that the test moves."""
    app = App(f"sqlite:///{tmp_path / 'never.db'}")
    store = Store()
    inner = Sender(store, ["a", "b"], lambda item, turn: "busy" if item == "b" and turn <= 9 else "")

    @app.command("tiles.later", key="tiles::{flight}:upload:v1")
    def later(flight: str) -> str:
        report = sender.send_pending(flight)
        jobs.append(report.job_id)
        if report.next_retry_at is not None:
            raise Again("some are pending", after=60, free=True)
        return report.outcome

    jobs: list[str | None] = []
    sender = retrying(inner, items=store, item_attempts=100, spill=later)
    with sandbox(app) as box:
        began = box.clock.now()
        report = sender.send_pending("f-1")
        assert report.job_id is not None
        assert inner.sent == [["a", "b"], ["b"], ["b"], ["b"]]
        box.drain()
        assert [job.id for job in box.done] == [report.job_id]
        assert jobs == [None, None]  # inside the job, the worker retries it
        assert store.done == {"a", "b"}
        assert (box.clock.now() - began).total_seconds() >= 60 + 60
    assert len(inner.sent) == 10


class Leaving(FakeClock):
    """A clock that is cancelled during the wait."""

    async def asleep(self, wait: float, /) -> None:
        raise asyncio.CancelledError


def test_rejections_are_counted_if_the_wait_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(counts={"bad": 4})
    inner = AsyncSender(store, ["bad", "slow", "ok"], lambda item, _: "" if item == "ok" else "no")
    with instant() as clock:
        monkeypatch.setattr(clock, "asleep", Leaving().asleep)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(retrying(inner, items=store).send_pending())
    assert (store.counts, set(store.gone), store.done) == ({"bad": 5, "slow": 1}, {"bad"}, {"ok"})
