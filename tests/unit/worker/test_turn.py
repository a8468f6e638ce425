"""The actions of a worker's turn, and the start of the next one."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from redrive.worker.turn import (
    BUSY_SIGNAL_SECONDS,
    DUE_QUERY_SECONDS,
    POLL_SECONDS,
    NextDuePoll,
    SubmissionSignal,
    TurnState,
    next_turn_at,
    plan_turn,
)


def state(*waits: float | None, hears_own_writes: bool = False) -> TurnState:
    """Return a state whose queries for the next due job return these waits, then None."""
    remaining = list(waits)
    query = NextDuePoll(lambda: remaining.pop(0) if remaining else None)
    return TurnState(SubmissionSignal(hears_own_writes=hears_own_writes), query)


def test_the_next_due_job_is_queried_rarely() -> None:
    queries: list[int] = []
    poll = NextDuePoll(lambda: queries.append(1) or 2.0)  # type: ignore[func-returns-value]
    assert poll.next(100.0) == 102.0
    assert poll.next(100.1) == 102.0
    assert len(queries) == 1


def test_a_submission_causes_another_query_soon() -> None:
    waits = [None, 1.0]
    poll = NextDuePoll(lambda: waits.pop(0))
    assert poll.next(100.0) == 100.0 + POLL_SECONDS
    poll.invalidate()
    assert poll.next(100.1) == 100.0 + DUE_QUERY_SECONDS
    assert poll.next(100.3) == 101.3


def test_a_retry_of_this_worker_is_known_without_a_query() -> None:
    poll = NextDuePoll(lambda: None)
    poll.next(100.0)
    poll.note_due_at(100.05)
    assert poll.next(100.01) == 100.05


def test_a_refresh_reports_whether_a_job_is_due() -> None:
    waits = [0.0, None, 1.0]
    poll = NextDuePoll(lambda: waits.pop(0))
    assert poll.refresh(100.0)
    assert not poll.refresh(100.01)
    assert poll.next(100.02) == 100.02 + POLL_SECONDS
    assert not poll.refresh(100.03)
    assert poll.next(100.04) == 101.03


def test_submissions_are_handled_later_only_on_sqlite_while_sources_are_busy() -> None:
    own = SubmissionSignal(hears_own_writes=True)
    assert own.handle_at(is_busy=True) == -math.inf, "it is set at first"
    own.clear(100.0)
    assert own.handle_at(is_busy=False) == math.inf
    own.set()
    assert own.handle_at(is_busy=False) == -math.inf
    assert own.handle_at(is_busy=True) == 100.0 + BUSY_SIGNAL_SECONDS
    others = SubmissionSignal(hears_own_writes=False)
    others.clear(100.0)
    others.set()
    assert others.handle_at(is_busy=True) == -math.inf


def test_a_claim_that_comes_back_short_is_repeated_when_the_next_job_is_due() -> None:
    turns = state(2.0)
    turns.on_claimed("thread", 8, 3, 100.0)
    assert (turns.is_backlogged, turns.empty_until) == (False, {"thread": 102.0})
    assert not turns.can_claim("thread", has_settlements=False)
    assert turns.can_claim("thread", has_settlements=True), "the settlements are written anyway"
    turns.signal.clear(100.0)
    turns.expire_empty(102.0, is_busy=False)
    assert turns.can_claim("thread", has_settlements=False)


def test_a_full_claim_means_a_backlog() -> None:
    turns = state()
    turns.on_claimed("thread", 8, 8, 100.0)
    assert (turns.is_backlogged, turns.empty_until) == (True, {})
    plan = plan_turn(turns, expects_arrivals=True, is_clock_trusted=True)
    assert not plan.store_arrivals_first, "the backlog comes first"
    assert not plan.defers_settlements, "a claim is sure to find jobs, and takes them along"


def test_a_submission_reopens_all_groups() -> None:
    turns = state(60.0)
    turns.on_claimed("thread", 8, 0, 100.0)
    turns.signal.set()
    turns.expire_empty(100.1, is_busy=False)
    assert turns.empty_until == {}


def test_a_busy_worker_on_sqlite_queries_once_instead_of_claiming_each_group() -> None:
    turns = state(60.0, 30.0, hears_own_writes=True)
    turns.on_claimed("thread", 8, 0, 100.0)
    turns.on_claimed("async", 8, 0, 100.0)
    turns.signal.set()
    turns.expire_empty(101.0, is_busy=True)
    assert turns.empty_until.keys() == {"thread", "async"}


def test_a_settled_retry_brings_the_next_claim_forward() -> None:
    turns = state(None)
    turns.on_claimed("thread", 8, 0, 100.0)
    turns.on_retries_settled(101.0)
    assert turns.empty_until == {"thread": 101.0}


def test_a_stopping_worker_claims_nothing_and_releases_unstarted_jobs() -> None:
    turns = state()
    turns.stop_by(130.0)
    turns.stop_by(110.0)
    turns.stop_by(120.0)
    assert turns.stop_at == 110.0
    plan = plan_turn(turns, expects_arrivals=False, is_clock_trusted=True)
    assert (plan.claims, plan.releases_unstarted) == (False, True)


def test_a_worker_with_a_wrong_clock_claims_nothing() -> None:
    plan = plan_turn(state(), expects_arrivals=False, is_clock_trusted=False)
    assert (plan.claims, plan.releases_unstarted) == (False, False)


def test_a_submission_does_not_wake_a_draining_worker() -> None:
    turns = state()
    turns.signal.set()
    assert next_turn_at(turns, is_busy=False, times=[105.0]) == -math.inf
    turns.stop_by(110.0)
    assert next_turn_at(turns, is_busy=False, times=[105.0]) == 105.0
    assert next_turn_at(turns, is_busy=False, times=[]) == 110.0


@given(
    st.dictionaries(st.sampled_from(["thread", "async", "short"]), st.floats(0, 1e6)),
    st.lists(st.floats(0, 1e6), min_size=1),
)
def test_the_next_turn_is_never_late(empty_until: dict[str, float], others: list[float]) -> None:
    turns = state()
    turns.signal.clear(0.0)
    turns.empty_until = empty_until
    turn_at = next_turn_at(turns, is_busy=False, times=others)
    assert all(turn_at <= time for time in (*empty_until.values(), *others))
