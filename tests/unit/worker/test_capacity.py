"""A worker claims no more jobs than it can start soon."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redrive.core.policy import RetryPolicy
from redrive.engine.settings import RetrySettings
from redrive.worker.capacity import MAX_BATCH, MAX_REMOTE_BATCH, Capacity
from redrive.worker.job_type import JobType

from .test_outcome import lease


def job_type(name: str, execution: Any = "thread", **more: Any) -> JobType:
    return JobType(name, lambda lease: None, execution, RetrySettings(), **more)


def requests(capacity: Capacity, *names: str) -> dict[str, tuple[dict[str, int], int]]:
    return {group: capacity.claim_request(group, members)[1:3] for group, members in capacity.groups(names)}


def test_slow_jobs_are_claimed_one_for_each_idle_thread() -> None:
    capacity, slow = Capacity([mail := job_type("mail")], 8, 100), mail
    assert requests(capacity, "mail") == {"thread": ({"mail": 8}, 8)}
    for number in range(5):
        capacity.acquire([(slow, lease(job_id=number))])
    assert requests(capacity, "mail") == {"thread": ({"mail": 3}, 3)}
    capacity.release([lease(job_id=0)])
    assert capacity.free("thread") == 4


def test_short_jobs_are_claimed_in_batches() -> None:
    capacity = Capacity([job_type("mail")], 8, 100)
    for _ in range(200):
        capacity.record_durations([("mail", 0.0001)])
    assert 40 <= capacity.batch_size("mail") <= MAX_BATCH
    ((group, (most, total)),) = requests(capacity, "mail").items()
    assert (group, total) == ("short", MAX_BATCH)
    assert most["mail"] <= MAX_BATCH


def test_a_job_type_counts_as_short_after_twenty_jobs() -> None:
    capacity = Capacity([job_type("mail")], 8, 100)
    found = []
    for _ in range(20):
        capacity.record_durations([("mail", 0.00005)])
        found.append(capacity.batch_size("mail"))
    assert found[9] == 1
    assert found[-1] > 1


def test_long_jobs_end_the_batches() -> None:
    capacity = Capacity([job_type("mail")], 8, 100)
    for _ in range(200):
        capacity.record_durations([("mail", 0.0001)])
    capacity.record_durations([("mail", 0.02)])
    capacity.record_durations([("mail", 0.02)])
    assert capacity.batch_size("mail") == 1


def test_async_jobs_and_transactions_have_their_own_limits() -> None:
    capacity = Capacity(
        [job_type("mail"), job_type("call", "async"), pay := job_type("pay", "transaction")], 8, 100, transactions=1
    )
    found = requests(capacity, "mail", "call", "pay")
    assert {group: total for group, (_, total) in found.items()} == {"thread": 8, "async": 100, "transaction": 1}
    capacity.acquire([(pay, lease(job_id=1))])
    assert capacity.free("transaction") == 0
    assert capacity.free("thread") == 7


def test_the_first_job_type_rotates() -> None:
    capacity = Capacity([job_type("a"), job_type("b"), job_type("c")], 8, 100)
    firsts = set()
    for _ in range(3):
        capacity.rotate()
        firsts.add(capacity.groups(["a", "b", "c"])[0][1][0])
    assert firsts == {"a", "b", "c"}


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.00005, 0.0005, 0.02, 1.0])), max_size=300))
def test_jobs_in_flight_are_bounded(steps: list[tuple[int, float]]) -> None:
    kinds = [job_type("mail"), job_type("call", "async"), job_type("pay", "transaction"), job_type("few", concurrency=2)]
    capacity, number, held = Capacity(kinds, 4, 10), 0, list[Any]()
    for take, seconds in steps:
        capacity.rotate()
        for group, members in capacity.groups([each.name for each in kinds]):
            want = capacity.claim_request(group, members)
            for name in members[: 1 + take]:
                for _ in range(min(want.max_by_type[name], capacity.claim_request(group, members).total)):
                    number += 1
                    one = lease(job_id=number)
                    chosen = next(each for each in kinds if each.name == name)
                    capacity.acquire([(chosen, one)])
                    held.append((one, chosen))
        executions = [each.execution for one, each in held]
        assert executions.count("async") <= 10
        assert executions.count("transaction") <= 4
        assert len(held) <= 10 + 4 + 2 * MAX_BATCH + 4
        for one, each in held[: len(held) // 2]:
            capacity.release([one])
            capacity.record_durations([(each.name, seconds)])
        held = held[len(held) // 2 :]


def test_arriving_jobs_start_as_far_as_they_fit() -> None:
    capacity = Capacity([job_type("mail"), job_type("book"), job_type("few", concurrency=2), job_type("aio", "async")], 4, 10)
    everything = ("mail", "book", "few", "aio")
    assert capacity.admit({"mail": 3, "book": 3, "few": 1, "aio": 2, "unknown": 5}, everything) == (
        {"mail": 3, "book": 1, "aio": 2},
        False,
    )
    assert capacity.admit({"mail": 3}, ("book",)) == ({}, False), "parked, or a quarantined job runs alone"


def test_arriving_short_jobs_wait_for_capacity() -> None:
    capacity = Capacity([short := job_type("mail")], 8, 100)
    for _ in range(200):
        capacity.record_durations([("mail", 0.00001)])
    assert capacity.admit({"mail": MAX_BATCH}, ("mail",)) == ({"mail": MAX_BATCH}, False)
    assert capacity.admit({"mail": 10 * MAX_BATCH}, ("mail",)) == ({"mail": MAX_BATCH}, False), "more will never fit at once"
    for number in range(2 * MAX_BATCH):
        capacity.acquire([(short, lease(job_id=number))])
    assert capacity.admit({"mail": 5}, ("mail",)) == ({"mail": 0}, True)


def test_jobs_shorter_than_a_round_trip_are_prefetched() -> None:
    capacity = Capacity([mail := job_type("mail")], 8, 100)
    capacity.round_trip = 0.1
    assert requests(capacity, "mail") == {"thread": ({"mail": 8}, 8)}, "their duration is not known yet"
    for _ in range(20):
        capacity.record_durations([("mail", 0.06)])
    assert requests(capacity, "mail") == {"prefetched": ({"mail": 40}, 40)}, "each thread runs four in two round trips"
    capacity.acquire([(mail, lease(job_id=number)) for number in range(30)])
    assert requests(capacity, "mail") == {"prefetched": ({"mail": 10}, 10)}
    capacity.release([lease(job_id=number) for number in range(30)])
    assert capacity.free("prefetched") == 40


def test_jobs_with_one_attempt_are_not_prefetched() -> None:
    once = JobType("mail", lambda lease: None, "thread", RetrySettings(policy=RetryPolicy(max_attempts=1)))
    capacity = Capacity([once], 8, 100)
    capacity.round_trip = 0.1
    for _ in range(20):
        capacity.record_durations([("mail", 0.06)])
    assert requests(capacity, "mail") == {"thread": ({"mail": 8}, 8)}


def test_nothing_is_prefetched_for_near_ledgers_and_long_jobs() -> None:
    capacity = Capacity([job_type("mail"), job_type("report")], 8, 100)
    for _ in range(20):
        capacity.record_durations([("mail", 0.05), ("report", 5.0)])
    capacity.round_trip = 0.001
    assert set(requests(capacity, "mail", "report")) == {"thread"}
    capacity.round_trip = 0.1
    assert set(requests(capacity, "mail", "report")) == {"prefetched", "thread"}
    assert capacity.group_of("report") == "thread"


@given(st.floats(0, 10), st.floats(1e-6, 10), st.integers(1, 64))
def test_prefetched_jobs_are_bounded_at_any_distance(trip: float, took: float, threads: int) -> None:
    capacity = Capacity([mail := job_type("mail")], threads, 100)
    capacity.round_trip = trip
    for _ in range(100):
        capacity.record_durations([("mail", took)])
    held = 0
    for _ in range(20):
        for group, members in capacity.groups(["mail"]):
            total = capacity.claim_request(group, members).total
            capacity.acquire([(mail, lease(job_id=held + number)) for number in range(total)])
            held += total
    assert held <= max(2 * MAX_REMOTE_BATCH, threads + MAX_BATCH + threads)


def test_one_last_attempt_starts_for_each_thread() -> None:
    capacity = Capacity([mail := job_type("mail"), report := job_type("report")], 4, 100)
    for _ in range(200):
        capacity.record_durations([("mail", 0.0001)])
    claimed = [lease(job_id=number, kind="mail") for number in range(10)]
    long = lease(job_id=20, kind="report")
    capacity.acquire([(mail, one) for one in claimed])
    capacity.acquire([(report, long)])
    assert all(map(capacity.is_shared, claimed))
    assert not capacity.is_shared(long)
    assert capacity.free_for_last_attempts == 3, "a long job has the fourth thread"
    capacity.start_last(claimed[:3])
    assert capacity.free_for_last_attempts == 0
    capacity.release(claimed[:2])
    assert capacity.free_for_last_attempts == 2


def test_started_jobs_share_a_thread_only_if_they_end_before_another_wakes() -> None:
    capacity = Capacity([job_type("brief"), job_type("short"), job_type("long")], 8, 100)
    for _ in range(400):
        capacity.record_durations([("brief", 0.00001), ("short", 0.0002), ("long", 1.0)])
    assert capacity.threads_for(["brief"] * 8) == 1
    assert capacity.threads_for(["brief"] * 8 + ["long"]) == 9
    assert capacity.threads_for(["short"] * 8) == 8
    assert capacity.threads_for(["long"]) == 1
    for _ in range(400):
        capacity.record_durations([("brief", 0.0)])
    assert capacity.threads_for(["brief"]) == 1
