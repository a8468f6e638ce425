"""For any numbers: no wait passes a deadline, no attempt starts after it, and nested deadlines only shrink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Fault, RetryPolicy, current, deadline, errors, outcome, retry
from redrive.testing import FakeClock, instant

# Eighths, and a clock that starts at 0: sums are exact, so a wait that just fits differs from one that just does not.
seconds = st.integers(1, 8000).map(lambda eighths: eighths / 8)
waits = st.integers(0, 800).map(lambda eighths: eighths / 8)
draws = st.sampled_from([0.0, 0.25, 0.5, 1.0])


@contextmanager
def instantly(draw: float = 0.0) -> Iterator[FakeClock]:
    with instant(jitter=draw) as clock:
        clock._started_monotonic = 0.0
        yield clock


@pytest.mark.req("R-5")
@given(
    attempts=st.integers(1, 12),
    base=waits,
    most=waits,
    jitter=waits,
    draw=draws,
    limit=seconds,
    takes=st.lists(waits, max_size=12),
)
def test_the_loop_never_exceeds_the_deadline(
    attempts: int, base: float, most: float, jitter: float, draw: float, limit: float, takes: list[float]
) -> None:
    """Waits never reach the limit. Only an attempt can, because it is not interrupted."""
    layer = retry(RetryPolicy(attempts, base, most, jitter, limit), on=OSError)
    with instantly(draw) as clock:
        began = clock.monotonic()
        starts: list[float] = []

        def work() -> None:
            starts.append(clock.monotonic())
            clock.advance(takes[len(starts) - 1] if len(starts) <= len(takes) else 0)
            raise OSError("down")

        with pytest.raises(OSError, match="down") as caught:
            layer.call(work)
        ended = outcome(caught.value)
        assert all(start < began + limit for start in starts)
        last = takes[len(starts) - 1] if len(starts) <= len(takes) else 0
        assert clock.monotonic() == starts[-1] + last  # raised immediately, without a wait at the end
        assert len(clock.slept) <= len(starts) - 1
        if attempts == 1:
            assert ended is None
        else:
            assert ended is not None
            assert ended.attempts == len(starts)
            assert ended.reason == ("attempts" if len(starts) == attempts else "timeout")
            assert (ended.retry_at is not None) == (ended.reason == "timeout")


@pytest.mark.req("C-8")
@given(limits=st.lists(st.tuples(st.sampled_from(["deadline", "attempt", "loop", "none"]), seconds), min_size=1, max_size=8))
def test_a_nested_deadline_only_shrinks(limits: list[tuple[str, float]]) -> None:
    with instantly():
        seen: list[float] = []

        def go(rest: list[tuple[str, float]], nearest: float) -> None:
            remaining = current().remaining
            assert (float("inf") if remaining is None else remaining) == nearest
            seen.append(nearest)
            if not rest:
                return
            (kind, limit), *others = rest
            if kind == "deadline":
                with deadline(limit):
                    go(others, min(nearest, limit))
            elif kind == "attempt":
                retry(attempt_timeout=limit).call(go, others, min(nearest, limit))
            elif kind == "loop":
                retry(RetryPolicy(timeout=limit), attempt_timeout=None).call(go, others, min(nearest, limit))
            else:
                retry(attempt_timeout=None).call(go, others, nearest)
            assert (float("inf") if remaining is None else remaining) == nearest

        go(limits, float("inf"))
        assert seen == sorted(seen, reverse=True)
        assert current().remaining is None


@pytest.mark.req("C-8")
@given(limit=waits, passes=waits)
def test_no_attempt_starts_after_the_deadline(limit: float, passes: float) -> None:
    with instantly() as clock:
        began = False

        def work() -> None:
            nonlocal began
            began = True

        with deadline(limit):
            end = clock.monotonic() + limit
            clock.advance(passes)
            over = clock.monotonic() >= end
            try:
                retry(work)()
            except errors.AttemptTimeout:
                assert not began
            assert began is not over


@pytest.mark.req("R-6")
@given(asked=st.integers(0, 40_000).map(lambda eighths: eighths / 8), limit=st.one_of(st.none(), seconds), base=waits)
def test_no_wait_is_shorter_than_retry_after(asked: float, limit: float | None, base: float) -> None:
    layer = retry(RetryPolicy(3, base, 1000, 0, limit), on=lambda _: Fault("throttled", after=asked))
    with instantly() as clock:

        def work() -> None:
            raise OSError("busy")

        with pytest.raises(OSError, match="busy") as caught:
            layer.call(work)
    assert all(wait >= asked for wait in clock.slept)
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason in ("attempts", "timeout", "retry_after")
    assert ended.retry_at is not None
    assert (ended.retry_at - clock.now()).total_seconds() >= asked
