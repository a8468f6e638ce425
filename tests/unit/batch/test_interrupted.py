"""A later pass that raises: the error carries the report of the earlier passes, and pending items become a job."""

from __future__ import annotations

import asyncio
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Stop, outcome, retry
from redrive.batch import ItemStatus, Report, retrying
from redrive.errors import BadReport
from redrive.journal import Ring
from redrive.testing import FakeClock, sandbox
from tests.unit.batch.test_spill import Command
from tests.unit.batch.world import AsyncSender, Script, Sender, Store, partial, success

GONE = "redrive: could not be enqueued as a job: RuntimeError: no database, password=[redacted]"


class AsyncScript(Script):
    """An async sender that returns these reports in turn."""

    async def send_pending(self, *args: Any, **kwargs: Any) -> Any:
        return super().send_pending(*args, **kwargs)


def raised_by(script: type[Script], *reports: Any, **options: Any) -> Any:
    """Return the error of a call."""
    sender = retrying(script(*reports), items=options.pop("items", Store()), **options)
    with pytest.raises(Exception) as raised:  # noqa: PT011  # the tests check the error itself
        asyncio.run(sender.send_pending("f-1")) if script is AsyncScript else sender.send_pending("f-1")
    return raised.value


BOTH = pytest.mark.parametrize("script", [Script, AsyncScript], ids=["sync", "async"])


@pytest.mark.req("B-6", "B-7")
@BOTH
def test_the_error_of_a_later_pass_carries_the_report(
    script: type[Script], redrive_clock: FakeClock, redrive_journal: Ring
) -> None:
    lost = ConnectionError("gone")
    error = raised_by(script, partial(a="", b="no"), lost)
    report = error.redrive_report
    assert (report.outcome, report.retry_count, report.job_id) == ("partial", 0, None)
    assert report.items == [ItemStatus("a", "acknowledged"), ItemStatus("b", "pending", "no")]
    assert report.next_retry_at == redrive_clock.now() + timedelta(seconds=60)
    ended = outcome(error)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.retry_at, ended.job_id) == (2, "not_retryable", report.next_retry_at, None)
    name = f"{script.__name__}.send_pending"
    assert error.__notes__ == [f"redrive: {name} raised in pass 2; before: 1 acknowledged, 0 given up, 1 pending"]
    (record,) = [record for record in redrive_journal.records if record.kind == "batch_ended"]
    assert (record.fields["acknowledged"], record.fields["pending"]) == (1, 1)
    assert pickle.loads(pickle.dumps(error)).redrive_report == report
    assert error is lost


@BOTH
def test_pending_items_are_enqueued_if_a_later_pass_raises(script: type[Script], redrive_clock: FakeClock) -> None:
    command = Command()
    error = raised_by(script, partial(a="", b="no"), ConnectionError("gone"), spill=command)
    assert command.left == [("f-1", {})]
    assert command.due == error.redrive_report.next_retry_at
    ended = outcome(error)
    assert ended is not None
    assert ended.job_id == error.redrive_report.job_id == "j-1"
    assert error.__notes__[1:] == ["redrive: enqueued as job j-1"]


@BOTH
def test_the_error_reports_that_the_job_could_not_be_enqueued(script: type[Script], redrive_clock: FakeClock) -> None:
    command = Command(RuntimeError("no database, password=hunter2"))
    error = raised_by(script, partial(a="", b="no"), ConnectionError("gone"), spill=command)
    assert isinstance(error, ConnectionError)
    assert error.redrive_report.job_id is None  # type: ignore[attr-defined]
    assert error.__notes__[1:] == [GONE]


@BOTH
def test_the_first_pass_has_nothing_to_report(script: type[Script], redrive_clock: FakeClock) -> None:
    command = Command()
    error = raised_by(script, ConnectionError("gone"), spill=command)
    assert not hasattr(error, "redrive_report")
    assert not hasattr(error, "__notes__")
    assert (outcome(error), command.left) == (None, [])


def test_stop_is_not_enqueued(redrive_clock: FakeClock) -> None:
    command = Command()
    error = raised_by(Script, partial(a="", b="no"), Stop("the flight was cancelled"), spill=command)
    assert (error.redrive_report.count("pending"), command.left) == (1, [])


def test_an_interrupt_is_not_enqueued(redrive_clock: FakeClock) -> None:
    command = Command()
    with pytest.raises(KeyboardInterrupt) as raised:
        retrying(Script(partial(a="", b="no"), KeyboardInterrupt()), items=Store(), spill=command).send_pending()
    assert command.left == []
    assert not hasattr(raised.value, "redrive_report")


def test_an_invalid_report_of_a_later_pass_carries_the_earlier_ones(redrive_clock: FakeClock) -> None:
    command = Command()
    error = raised_by(Script, partial(a="", b="no"), success("c"), spill=command)
    assert isinstance(error, BadReport)
    assert error.redrive_report.count("acknowledged") == 1  # type: ignore[attr-defined]
    assert len(command.left) == 1


def test_the_outcome_of_a_retried_request_stays(redrive_clock: FakeClock) -> None:
    """`@retry` inside the sender used up its attempts: outer layers must still see that."""

    class Inner(Script):
        def send_pending(self, *args: Any, **kwargs: Any) -> Any:
            return (
                retry(max_attempts=2, jitter=0).call(super().send_pending, *args, **kwargs)
                if self.calls
                else super().send_pending()
            )

    error = raised_by(Inner, partial(a="", b="no"), ConnectionError("gone"), spill=Command())
    ended = outcome(error)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.job_id) == (2, "attempts", "j-1")


def test_an_error_that_allows_no_attributes_is_still_raised(redrive_clock: FakeClock) -> None:
    class Frozen(Exception):
        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(name)

    error = raised_by(Script, partial(a="", b="no"), Frozen("gone"))
    assert isinstance(error, Frozen)
    assert error.redrive_report.count("pending") == 1  # type: ignore[attr-defined]


def test_items_marked_in_the_failed_pass_are_not_given_up(redrive_clock: FakeClock) -> None:
    """The failed pass accepted b before it raised. Its report never came, so b is pending here."""
    store = Store()

    class Lost(Sender):
        def send_pending(self, flight: str = "f") -> Report:
            if self.sent:
                self.store.done.add("b")
                raise ConnectionError("gone")
            return self.pass_()

    inner = Lost(store, ["a", "b", "c"], lambda item, _: "" if item == "a" else "busy")
    with pytest.raises(ConnectionError) as raised:
        retrying(inner, items=store).send_pending()
    report: Report = raised.value.redrive_report  # type: ignore[attr-defined]
    assert [item.status for item in report.items] == ["acknowledged", "pending", "pending"]


@pytest.mark.parametrize("kind", [Sender, AsyncSender])
def test_the_worker_sends_the_rest_after_a_lost_connection(kind: type, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'never.db'}")
    store = Store()

    def answer(item: str, turn: int) -> str:
        if turn == 2:
            raise ConnectionError("gone")
        return "busy" if turn == 1 and item != "a" else ""

    inner = kind(store, ["a", "b", "c"], answer)

    @app.command("tiles.later", key="tiles::{flight}:upload:v1")
    def later(flight: str) -> None:
        run(flight)

    sender = retrying(inner, items=store, spill=later)

    def run(flight: str) -> None:
        asyncio.run(sender.send_pending(flight)) if kind is AsyncSender else sender.send_pending(flight)

    with sandbox(app) as box:
        with pytest.raises(ConnectionError) as raised:
            run("f-1")
        box.drain()
        ended = outcome(raised.value)
        assert ended is not None
        assert [job.id for job in box.done] == [ended.job_id]
    assert store.done == {"a", "b", "c"}


def test_items_that_another_sender_accepted_meanwhile_are_missing(
    redrive_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two senders at the same time: the page on batches says how the slower call ends."""
    store = Store()
    other = retrying(Sender(store, ["a", "b"], lambda *_: ""), items=store)
    monkeypatch.setattr(redrive_clock, "sleep", lambda _: other.send_pending())
    slower = Sender(store, ["a", "b"], lambda item, _: "busy" if item == "b" else "")
    with pytest.raises(BadReport, match="missing item 'b'") as raised:
        retrying(slower, items=store).send_pending()
    assert raised.value.redrive_report.count("acknowledged") == 1  # type: ignore[attr-defined]
    assert store.done == {"a", "b"}
