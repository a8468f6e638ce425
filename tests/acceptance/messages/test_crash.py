"""Consumers die at every step between read and acknowledgement."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Any

import pytest

from redrive import App, Event
from redrive.ledger import open_ledger
from redrive.ledger.failpoint import MESSAGE_POINTS
from redrive.messages import RedisStream

from .market import Market
from .stalls import RedisStall

IDS = tuple(f"p-{n:03}" for n in range(30))
TIMES = (1, 2) if os.environ.get("REDRIVE_FULL") == "1" else (1,)
"""At which pass of the point a consumer dies. `make crash-matrix` runs both."""


@pytest.mark.req("M-1", "M-6")
@pytest.mark.parametrize("nth", TIMES)
@pytest.mark.parametrize("point", [point for point in MESSAGE_POINTS if point != "tell.after"])
def test_a_crash_between_read_and_acknowledgement_loses_no_message(market: Market, point: str, nth: int) -> None:
    market.check_crash(*IDS, at=f"{point}:{nth}")


@pytest.mark.req("E-7")
@pytest.mark.parametrize("point", ["worker.claimed", "worker.ran", "turn.before_commit", "turn.after_commit"])
def test_a_publisher_killed_between_two_effects_loses_nothing_and_keeps_the_order_of_a_key(market: Market, point: str) -> None:
    assert isinstance(market.stall, RedisStall)
    ids = [f"{key}-{number:02}" for number in range(10) for key in "ab"]
    with App(market.url, destinations=[RedisStream(market.stall.address, market.stream)]) as app:
        for each in ids:
            app.publish(Event("paid", {"id": each}, id=each), to=market.stream, key=each[0])
    assert market.wait(market.hire("until=idle", crash_at=f"{point}:3:kill")) == -signal.SIGKILL, market.story()
    assert market.wait(market.hire("until=idle")) == 0, market.story()
    entries: Any = market.stall.client.xrange(market.stream)
    sent = dict.fromkeys(fields[b"id"].decode() for _, fields in entries)
    for key in "ab":
        assert [each for each in sent if each[0] == key] == [each for each in ids if each[0] == key]
    assert market.scored() == Counter(ids)


@pytest.mark.req("M-3")
def test_a_crash_after_publishing_publishes_a_dead_letter_again(market: Market) -> None:
    assert isinstance(market.stall, RedisStall)
    client = market.stall.client
    client.xadd(market.stream, {"nonsense": "1"})
    assert market.wait(market.hire(crash_at="tell.after:1:kill")) == -signal.SIGKILL
    second = market.hire()
    told = f"{market.stream}.dead"
    market.until(lambda: client.xlen(told) == 2, "it is told once more")
    os.kill(second, signal.SIGTERM)
    assert market.wait(second) == 0, market.story()
    entries: Any = client.xrange(told)
    assert [fields[b"id"] for _, fields in entries] == [b"1", b"1"]


@pytest.mark.req("M-6", "M-7")
def test_a_new_consumer_handles_entries_of_a_killed_one(market: Market) -> None:
    ids = [f"p-{n:03}" for n in range(200)]
    market.send(*ids, takes=0.02)
    first = market.hire("idle=60")
    market.until(lambda: market.booked().total() >= 60, "the first one is at work")
    os.kill(first, signal.SIGKILL)
    second = market.hire("idle=60")
    seconds = market.until(lambda: len(market.booked()) == len(market.scored()) == 200, "a fresh one handles the rest")
    assert seconds < 50, "not only when the other has been idle for its 60 s"
    os.kill(second, signal.SIGTERM)
    assert market.wait(second) == 0, market.story()
    market.wait(first)
    market.checked(*ids, crashes=1)


@pytest.mark.req("M-6")
def test_one_of_two_consumers_is_killed(market: Market) -> None:
    market.send(*IDS, takes=0.02)
    first, second = market.hire(), market.hire("until=idle")
    market.until(lambda: market.booked().total() >= 8, "they are at work")
    os.kill(first, signal.SIGKILL)
    assert market.wait(second) == 0, market.story()
    market.wait(first)
    market.checked(*IDS, crashes=1)


@pytest.mark.req("M-6")
def test_a_message_that_kills_its_consumer_does_not_stop_others(market: Market) -> None:
    market.send(*IDS[:10])
    market.send("poison", poison=True)
    market.send(*IDS[10:])
    kills = 0
    while (status := market.wait(market.hire("until=idle"))) != 0:
        assert status == -signal.SIGKILL, market.story()
        kills += 1
        assert kills < 8, "it kills and kills"
    assert kills == 3
    found = market.tallies()["book"]
    assert (found.done, found.dead) == (30, 1)
    with open_ledger(market.url) as ledger:
        (letter,) = ledger.dead_letters()
    assert (letter.kind, letter.reason, letter.source) == ("book", "crashed_worker", market.stream)
    assert [one for one in IDS if not market.booked()[one]] == []
