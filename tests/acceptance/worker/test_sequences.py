"""Sequences whose workers are killed: in order, nothing lost, and a dead or cancelled head lets the next job run."""

from __future__ import annotations

import os
import random
import signal
from functools import partial
from itertools import pairwise

import pytest

from redrive.ledger import NewJob, open_ledger
from tests.acceptance.crash.diary import read
from tests.acceptance.crash.oracle import connection, rows

from .shift import DEAD, DONE, Shift

pytestmark = pytest.mark.req("Q-7", "L-3")
SEQUENCES = {f"s{number}": [f"s{number}/k{place:02}" for place in range(8)] for number in range(4)}
CANCELLED = 6


def kill(shift: Shift, pid: int, name: str) -> None:
    """Kill a worker, and make its last heartbeat old, so that others take its jobs over at once."""
    os.kill(pid, signal.SIGKILL)
    assert shift.zygote.wait(pid) == -signal.SIGKILL
    make_old(shift, name)


def make_old(shift: Shift, name: str) -> None:
    back = "3600000000" if shift.url.startswith("sqlite") else "interval '1 hour'"
    with connection(shift.url) as opened:
        opened.execute(f"UPDATE redrive_worker SET seen_at = seen_at - {back} WHERE name LIKE '{name}-%'")


def submit(shift: Shift, sequences: dict[str, list[str]]) -> None:
    """Submit the jobs of each sequence in this order, mixed with those of the others."""
    places = range(max(map(len, sequences.values())))
    jobs = [(name, keys[place]) for place in places for name, keys in sequences.items() if place < len(keys)]
    with open_ledger(shift.url) as ledger:
        ledger.submit_many([NewJob("ordered", key, sequence=name, max_attempts=5) for name, key in jobs])


def has_done(shift: Shift, count: int) -> bool:
    return shift.effects("ordered").total() >= count


def disorder(shift: Shift, sequences: dict[str, list[str]]) -> list[str]:
    """Return the jobs that began before their predecessor had ended, or ran after a successor began."""
    wrong = []
    for keys in sequences.values():
        lines = [(line[0], line[2]) for line in read(shift.diary) if line[0] in ("begin", "effect") and line[2] in keys]
        begun = [key for word, key in lines if word == "begin"]
        if begun != sorted(begun, key=keys.index):
            wrong.append(f"not in order: {begun}")
        for earlier, later in pairwise(keys):
            if ("effect", earlier) in lines and ("begin", later) in lines:
                last = max(place for place, line in enumerate(lines) if line == ("effect", earlier))
                if last > lines.index(("begin", later)):
                    wrong.append(f"{later} began before {earlier} had ended")
    return wrong


def test_killed_workers_keep_each_sequence_in_order(shift: Shift) -> None:
    submit(shift, SEQUENCES)
    dice = random.Random(7)
    workers = {f"worker{number}": shift.hire() for number in (1, 2)}
    for finished in (4, 12, 20):
        shift.until(partial(has_done, shift, finished), "the workers are at work")
        name = dice.choice(list(workers))
        kill(shift, workers.pop(name), name)
        pid = shift.hire()
        workers[f"worker{shift.hired}"] = pid
    shift.until(lambda: shift.settled(32), "all jobs end")
    for name, pid in workers.items():
        kill(shift, pid, name)
    assert disorder(shift, SEQUENCES) == []
    assert shift.states() == {DONE: 32}
    assert set(shift.effects("ordered")) == {key for keys in SEQUENCES.values() for key in keys}, "nothing is lost"
    lost = dict(rows(shift.url, "SELECT key, crashes FROM redrive_job"))
    assert [key for key, count in shift.effects("ordered").items() if count > 1 + lost[key]] == []
    shift.balanced()


def test_a_sequence_continues_after_its_head_crashes_fails_or_is_cancelled(shift: Shift) -> None:
    sequences = {
        "killing": ["a/1", "a/poison", "a/2", "a/3"],
        "failing": ["b/bad", "b/1", "b/2"],
        "cancelled": ["c/withdrawn", "c/also-withdrawn", "c/1"],
        "healthy": ["d/1", "d/2"],
    }
    submit(shift, sequences)
    with open_ledger(shift.url) as ledger:
        heads = [ledger.find("ordered", key) for key in sequences["cancelled"][:2]]
        ledger.control.cancel([job.id for job in heads if job is not None], actor="ann", because="withdrawn")
    deaths = 0
    while (status := shift.wait(shift.hire("until=idle"))) != 0:
        assert status == -signal.SIGKILL, shift.story()
        deaths += 1
        assert deaths <= 3, shift.story()
        make_old(shift, f"worker{shift.hired}")
    assert deaths == 3
    assert disorder(shift, sequences) == []
    assert shift.states() == {DONE: 8, DEAD: 2, CANCELLED: 2}
    assert sorted(rows(shift.url, "SELECT key, reason FROM redrive_dead")) == [
        ("a/poison", "crashed_worker"),
        ("b/bad", "attempts"),
    ]
    done = {key for keys in sequences.values() for key in keys} - {"a/poison", "b/bad", *sequences["cancelled"][:2]}
    assert set(shift.effects("ordered")) == done
    shift.balanced()
