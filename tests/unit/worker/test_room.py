"""How much a worker takes: no more than it can start."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redrive.core.policy import RetryPolicy
from redrive.engine.settings import Settings
from redrive.worker.kind import Kind
from redrive.worker.room import MOST, MOST_FAR, Room

from .test_outcome import lease


def kind(name: str, colour: Any = "plain", **more: Any) -> Kind:
    return Kind(name, lambda lease: None, colour, Settings(), **more)


def wants(room: Room, *names: str) -> dict[str, tuple[dict[str, int], int]]:
    return {group: room.want(group, members)[1:3] for group, members in room.groups(names)}


def test_of_jobs_that_take_their_time_as_many_as_there_are_threads() -> None:
    room, slow = Room([mail := kind("mail")], 8, 100), mail
    assert wants(room, "mail") == {"plain": ({"mail": 8}, 8)}
    for number in range(5):
        room.takes([(slow, lease(job_id=number))])
    assert wants(room, "mail") == {"plain": ({"mail": 3}, 3)}
    room.gives([lease(job_id=0)])
    assert room.free("plain") == 4


def test_of_short_ones_a_handful() -> None:
    room = Room([kind("mail")], 8, 100)
    for _ in range(200):
        room.took([("mail", 0.0001)])
    assert 40 <= room.handful("mail") <= MOST
    ((group, (most, total)),) = wants(room, "mail").items()
    assert (group, total) == ("short", MOST)
    assert most["mail"] <= MOST


def test_twenty_are_enough_to_know_that_they_are_short_and_one_is_not() -> None:
    room = Room([kind("mail")], 8, 100)
    found = []
    for _ in range(20):
        room.took([("mail", 0.00005)])
        found.append(room.handful("mail"))
    assert found[9] == 1
    assert found[-1] > 1


def test_one_that_takes_long_ends_the_handfuls() -> None:
    room = Room([kind("mail")], 8, 100)
    for _ in range(200):
        room.took([("mail", 0.0001)])
    room.took([("mail", 0.02)])
    room.took([("mail", 0.02)])
    assert room.handful("mail") == 1


def test_async_ones_have_room_of_their_own_and_transactions_few_places() -> None:
    room = Room([kind("mail"), kind("call", "async"), pay := kind("pay", "transaction")], 8, 100, transactions=1)
    found = wants(room, "mail", "call", "pay")
    assert {group: total for group, (_, total) in found.items()} == {"plain": 8, "async": 100, "transaction": 1}
    room.takes([(pay, lease(job_id=1))])
    assert room.free("transaction") == 0
    assert room.free("plain") == 7


def test_who_is_first_changes_with_each_turn() -> None:
    room = Room([kind("a"), kind("b"), kind("c")], 8, 100)
    firsts = set()
    for _ in range(3):
        room.next()
        firsts.add(room.groups(["a", "b", "c"])[0][1][0])
    assert firsts == {"a", "b", "c"}


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.00005, 0.0005, 0.02, 1.0])), max_size=300))
def test_there_is_never_more_in_hand_than_can_be_started_soon(steps: list[tuple[int, float]]) -> None:
    kinds = [kind("mail"), kind("call", "async"), kind("pay", "transaction"), kind("few", concurrency=2)]
    room, number, held = Room(kinds, 4, 10), 0, list[Any]()
    for take, seconds in steps:
        room.next()
        for group, members in room.groups([each.name for each in kinds]):
            want = room.want(group, members)
            for name in members[: 1 + take]:
                for _ in range(min(want.kinds[name], room.want(group, members).total)):
                    number += 1
                    one = lease(job_id=number)
                    chosen = next(each for each in kinds if each.name == name)
                    room.takes([(chosen, one)])
                    held.append((one, chosen))
        by_colour = [each.colour for one, each in held]
        assert by_colour.count("async") <= 10
        assert by_colour.count("transaction") <= 4
        assert len(held) <= 10 + 4 + 2 * MOST + 4
        for one, each in held[: len(held) // 2]:
            room.gives([one])
            room.took([(each.name, seconds)])
        held = held[len(held) // 2 :]


def test_of_what_comes_as_much_is_begun_as_there_is_room_for() -> None:
    room = Room([kind("mail"), kind("book"), kind("few", concurrency=2), kind("aio", "async")], 4, 10)
    everything = ("mail", "book", "few", "aio")
    assert room.grant({"mail": 3, "book": 3, "few": 1, "aio": 2, "unknown": 5}, everything) == (
        {"mail": 3, "book": 1, "aio": 2},
        False,
    )
    assert room.grant({"mail": 3}, ("book",)) == ({}, False), "parked, or somebody runs alone"


def test_short_ones_wait_a_moment_for_room() -> None:
    room = Room([short := kind("mail")], 8, 100)
    for _ in range(200):
        room.took([("mail", 0.00001)])
    assert room.grant({"mail": MOST}, ("mail",)) == ({"mail": MOST}, False)
    assert room.grant({"mail": 10 * MOST}, ("mail",)) == ({"mail": MOST}, False), "more will never fit at once"
    for number in range(2 * MOST):
        room.takes([(short, lease(job_id=number))])
    assert room.grant({"mail": 5}, ("mail",)) == ({"mail": 0}, True)


def test_of_jobs_that_a_round_trip_outlasts_some_are_fetched_ahead() -> None:
    room = Room([mail := kind("mail")], 8, 100)
    room.trip = 0.1
    assert wants(room, "mail") == {"plain": ({"mail": 8}, 8)}, "what they take is not known yet"
    for _ in range(20):
        room.took([("mail", 0.06)])
    assert wants(room, "mail") == {"far": ({"mail": 40}, 40)}, "each thread does four in two round trips"
    room.takes([(mail, lease(job_id=number)) for number in range(30)])
    assert wants(room, "mail") == {"far": ({"mail": 10}, 10)}
    room.gives([lease(job_id=number) for number in range(30)])
    assert room.free("far") == 40


def test_jobs_with_one_attempt_are_not_fetched_ahead() -> None:
    once = Kind("mail", lambda lease: None, "plain", Settings(policy=RetryPolicy(max_attempts=1)))
    room = Room([once], 8, 100)
    room.trip = 0.1
    for _ in range(20):
        room.took([("mail", 0.06)])
    assert wants(room, "mail") == {"plain": ({"mail": 8}, 8)}


def test_near_ledgers_and_long_jobs_have_nothing_fetched_ahead() -> None:
    room = Room([kind("mail"), kind("report")], 8, 100)
    for _ in range(20):
        room.took([("mail", 0.05), ("report", 5.0)])
    room.trip = 0.001
    assert set(wants(room, "mail", "report")) == {"plain"}
    room.trip = 0.1
    assert set(wants(room, "mail", "report")) == {"far", "plain"}
    assert room.group("report") == "plain"


@given(st.floats(0, 10), st.floats(1e-6, 10), st.integers(1, 64))
def test_however_far_the_ledger_is_what_is_fetched_ahead_is_bounded(trip: float, took: float, threads: int) -> None:
    room = Room([mail := kind("mail")], threads, 100)
    room.trip = trip
    for _ in range(100):
        room.took([("mail", took)])
    held = 0
    for _ in range(20):
        for group, members in room.groups(["mail"]):
            total = room.want(group, members).total
            room.takes([(mail, lease(job_id=held + number)) for number in range(total)])
            held += total
    assert held <= max(2 * MOST_FAR, threads + MOST + threads)


def test_of_last_attempts_that_share_threads_one_starts_for_each_thread() -> None:
    room = Room([mail := kind("mail"), report := kind("report")], 4, 100)
    for _ in range(200):
        room.took([("mail", 0.0001)])
    claimed = [lease(job_id=number, kind="mail") for number in range(10)]
    long = lease(job_id=20, kind="report")
    room.takes([(mail, one) for one in claimed])
    room.takes([(report, long)])
    assert all(map(room.shares, claimed))
    assert not room.shares(long)
    assert room.startable == 3, "a long job has the fourth thread"
    room.start(claimed[:3])
    assert room.startable == 0
    room.gives(claimed[:2])
    assert room.startable == 2


def test_started_jobs_share_a_thread_only_where_they_are_done_before_another_is_awake() -> None:
    room = Room([kind("brief"), kind("short"), kind("long")], 8, 100)
    for _ in range(400):
        room.took([("brief", 0.00001), ("short", 0.0002), ("long", 1.0)])
    assert room.threads_for(["brief"] * 8) == 1
    assert room.threads_for(["brief"] * 8 + ["long"]) == 9
    assert room.threads_for(["short"] * 8) == 8
    assert room.threads_for(["long"]) == 1
    for _ in range(400):
        room.took([("brief", 0.0)])
    assert room.threads_for(["brief"]) == 1
