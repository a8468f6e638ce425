"""The recorder: counts of a worker between two writes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import pytest

from redrive.ledger.model import Lease
from redrive.ledger.stats import activity
from redrive.ledger.stats.activity import ALL_KINDS, MAX_MINUTES, ActivityRecorder, minute_of, wait_seconds
from redrive.ledger.stats.histogram import bucket_of

START = datetime(2026, 1, 31, 12, 30, 5, tzinfo=timezone.utc)


class Attempt(NamedTuple):
    lease: Lease
    seconds: float


def attempt(kind: str = "mail", *, wait: float = 0.25, run: float = 1.5, stored: Any = "micros") -> Attempt:
    due: Any = START if stored == "datetime" else 1_000_000
    started = due + (timedelta(seconds=wait) if stored == "datetime" else int(wait * 1_000_000))
    fields: dict[str, Any] = {"due_stored": due, "started_stored": None if stored is None else started}
    return Attempt(Lease(1, 1, kind, "k", 1, 0, None, 1, None, 0, None, None, None, b"")._replace(**fields), run)


class Clock:
    """The ledger's clock and the monotonic clock, in one."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return 1000.0 + self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(activity, "monotonic", clock.monotonic)
    return clock


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("stored", ["micros", "datetime"])
def test_successes_are_counted_by_kind_with_a_total(clock: Clock, stored: str) -> None:
    recorder = ActivityRecorder(clock.now)
    recorder.add_successes([attempt(stored=stored), attempt(stored=stored), attempt("sms", run=3.0, stored=stored)])
    rows = {row.kind: row for row in recorder.unwritten()}
    wait, run = bucket_of(0.25e6), bucket_of(1.5e6)
    assert (rows["mail"].slot, rows["mail"].span, rows["mail"].counts) == (minute_of(START), 1, (2, 0, 0, 0))
    assert (rows["mail"].wait, rows["mail"].run) == ({wait: 2}, {run: 2})
    assert rows[ALL_KINDS].counts == (3, 0, 0, 0)
    assert rows[ALL_KINDS].run == {run: 2, bucket_of(3e6): 1}


def test_the_fast_path_agrees_with_the_readable_one(clock: Clock) -> None:
    fast, readable = ActivityRecorder(clock.now), ActivityRecorder(clock.now)
    for place in range(200):
        one = attempt(wait=1e-6 * 1.4**place % 1e7, run=1e-7 * 1.5**place % 1e8)
        fast.add_successes([one])
        readable.add("mail", "done", run=one.seconds, wait=wait_seconds(one.lease))
    assert fast.unwritten() == readable.unwritten()


def test_an_attempt_that_was_only_claimed_has_no_wait(clock: Clock) -> None:
    recorder = ActivityRecorder(clock.now)
    recorder.add_successes([attempt(stored=None)])
    assert recorder.unwritten()[0].wait == {}
    assert wait_seconds(attempt(stored=None).lease) is None


@pytest.mark.req("Q-12")
def test_only_changed_minutes_are_written_again_and_in_full(clock: Clock) -> None:
    recorder = ActivityRecorder(clock.now)
    recorder.add("mail", "done")
    recorder.add("sms", "failed")
    assert len(recorder.unwritten()) == 3
    recorder.on_written()
    assert recorder.unwritten() == []
    recorder.add("mail", "dead")
    assert {row.kind: row.counts for row in recorder.unwritten()} == {"mail": (1, 0, 1, 0), ALL_KINDS: (1, 1, 1, 0)}


def test_a_write_that_failed_is_repeated(clock: Clock) -> None:
    recorder = ActivityRecorder(clock.now)
    recorder.add("mail", "done")
    assert recorder.unwritten() == recorder.unwritten() != []


def test_each_minute_has_its_own_row(clock: Clock) -> None:
    recorder = ActivityRecorder(clock.now)
    recorder.add("mail", "done")
    clock.seconds = 60
    recorder.add("mail", "done")
    slots = [row.slot for row in recorder.unwritten() if row.kind == "mail"]
    assert slots == [minute_of(START), minute_of(START) + 1]


@pytest.mark.req("Q-12")
def test_memory_is_bounded_while_the_ledger_is_offline(clock: Clock) -> None:
    recorder = ActivityRecorder(clock.now)
    for minute in range(500):
        clock.seconds = 60.0 * minute
        recorder.add("mail", "done")
        recorder.forget_old()
    assert len({row.slot for row in recorder.unwritten()}) == MAX_MINUTES + 1
