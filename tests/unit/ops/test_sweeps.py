"""How far a sweep is, how long the rest takes, and whether failures still rise."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from redrive.ledger.sweep import Sweep
from redrive.ops.overview.trend import trend
from redrive.ops.sweeps import describe_progress, time_left

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
START = NOW - timedelta(seconds=100)
SWEEP = Sweep(1, "replay", "running", "ann", "x", {}, None, 0, 300, 100, 0, None, NOW, START, NOW, None)


def test_a_replayed_dead_letter_is_not_done_while_its_job_runs() -> None:
    one = replace(SWEEP, total=3, made=1)
    assert describe_progress(one) == "1 of 3 replayed, 2 left"
    assert describe_progress(one, {"at it": 1}) == "1 of 3 replayed (1 in progress), 2 left"
    assert describe_progress(replace(one, act="discard", skipped=1)) == "1 of 3 discarded, 1 skipped, 1 left"


def test_the_time_left_follows_the_pace_or_the_rate() -> None:
    assert time_left(SWEEP, NOW) == timedelta(seconds=200)
    assert time_left(replace(SWEEP, rate=4.0), NOW) == timedelta(seconds=50)


def test_the_time_left_is_unknown_before_the_canary_has_passed_and_after_the_end() -> None:
    assert time_left(replace(SWEEP, canary=100), NOW) is None
    assert time_left(replace(SWEEP, made=0), NOW) is None
    assert time_left(replace(SWEEP, state="paused"), NOW) is None
    assert time_left(replace(SWEEP, made=300), NOW) is None


def test_failures_rise_only_while_new_ones_come_in() -> None:
    slot = 1000
    assert trend([(slot, slot, 40)], slot).is_growing
    assert trend([(slot - 1, slot - 1, 40)], slot).is_growing
    stopped = trend([(slot - 2, slot - 2, 40)], slot)
    assert (stopped.is_unusual, stopped.is_growing) == (True, False)
    assert stopped.since is not None, "the series is not over yet"


def test_a_series_does_not_start_before_its_first_failure() -> None:
    first = datetime.fromtimestamp(0, timezone.utc) + timedelta(minutes=10 * 1000 + 4)
    assert trend([(1000, 1000, 40)], 1000, first=first).since == first
