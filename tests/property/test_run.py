"""For any failures in any order: all paths through the loops agree with each other and with a simple model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Budget, RetryPolicy, journal, outcome, retry
from redrive.testing import instant

script = st.lists(st.sampled_from(["good", "transient", "permanent"]), max_size=8)
WAYS: list[dict[str, Any]] = [
    {"attempt_timeout": None},
    {},
    {"timeout": 1e9},
    {"key": lambda: "a:b:c:d:v1"},
    {"reject": lambda result: False},
]


def run_script(steps: list[str], options: dict[str, Any], use: str, attempts: int, tokens: int) -> tuple[Any, ...]:
    """Return the outcome of a call with these attempts: (result or error, calls, reason, tokens left)."""
    budget = Budget(capacity=100, cost=10, refill=1, floor=0)
    budget._tokens = float(tokens)
    budget.below_capacity = tokens < 100
    layer = retry(max_attempts=attempts, backoff_base=0, jitter=0, on=OSError, budget=budget, **options)
    calls = 0

    def work() -> str:
        nonlocal calls
        calls += 1
        step = steps[calls - 1] if calls <= len(steps) else "good"
        if step == "good":
            return step
        raise OSError(step) if step == "transient" else KeyError(step)

    async def later() -> str:
        return work()

    def block() -> str | None:
        for attempt in layer.attempts():
            with attempt:
                return work()
        return None

    async def later_block() -> str | None:
        async for attempt in layer.attempts():
            with attempt:
                return work()
        return None

    try:
        if use == "call":
            result: Any = layer.call(work)
        elif use == "acall":
            result = asyncio.run(layer.acall(later))
        elif use == "block":
            result = block()
        else:
            result = asyncio.run(later_block())
    except (OSError, KeyError) as error:
        ended = outcome(error)
        return type(error), calls, None if ended is None else ended.reason, budget.left
    return result, calls, None, budget.left


def model(steps: list[str], attempts: int, tokens: float) -> tuple[Any, ...]:
    paid = 0.0
    for number in range(1, attempts + 1):
        step = steps[number - 1] if number <= len(steps) else "good"
        if step == "good":
            return "good", number, None, min(100.0, tokens + (paid if number > 1 else 1))
        if step == "permanent":
            return KeyError, number, "not_retryable", tokens
        if number == attempts:
            return OSError, number, "attempts" if attempts > 1 else None, tokens
        if tokens < 10:
            return OSError, number, "budget", tokens
        tokens, paid = tokens - 10, 10.0
    raise AssertionError


@pytest.mark.req("C-1", "C-9")
@given(
    steps=script,
    options=st.sampled_from(range(len(WAYS))),
    use=st.sampled_from(["call", "acall", "block", "later_block"]),
    attempts=st.integers(1, 6),
    tokens=st.integers(0, 100),
    staged=st.booleans(),
)
def test_every_way_of_calling_agrees_with_the_model(
    steps: list[str], options: int, use: str, attempts: int, tokens: int, staged: bool
) -> None:
    chosen = {name: value for name, value in WAYS[options].items() if name != "reject" or "block" not in use}
    if staged:
        with instant():
            assert run_script(steps, chosen, use, attempts, tokens) == model(steps, attempts, tokens)
    else:
        assert run_script(steps, chosen, use, attempts, tokens) == model(steps, attempts, tokens)


@pytest.mark.req("C-1")
@given(steps=script, attempts=st.integers(1, 6), options=st.sampled_from(range(len(WAYS))))
def test_each_attempt_has_one_record(steps: list[str], attempts: int, options: int) -> None:
    ring = journal.ring()
    unsubscribe = journal.subscribe(ring, inline=True, every=True)
    try:
        _, calls, reason, _ = run_script(steps, WAYS[options], "call", attempts, 100)
    finally:
        unsubscribe()
    kinds = [record.kind for record in ring.records]
    if attempts == 1 and steps and steps[0] == "transient":
        assert kinds == []  # disabled: nothing was decided
        return
    last = "giveup" if reason else "success" if calls == 1 else "recovered"
    assert kinds == ["retry"] * (calls - 1) + [last]
    assert [record.fields["attempt"] for record in ring.records] == list(range(1, calls + 1))


@pytest.mark.req("R-4")
@given(attempts=st.integers(2, 15), base=st.floats(0, 100), most=st.floats(0, 100), jitter=st.floats(0, 10), draw=st.floats(0, 1))
def test_waits_follow_the_policy(attempts: int, base: float, most: float, jitter: float, draw: float) -> None:
    policy = RetryPolicy(attempts, base, most, jitter)

    def work() -> None:
        raise OSError("down")

    expected = [wait for number in range(1, attempts) if (wait := policy.wait(number, draw)) > 0]
    for limit in (None, 10):
        with instant(jitter=draw) as clock, pytest.raises(OSError, match="down"):
            retry(policy, on=OSError, attempt_timeout=limit).call(work)
        assert clock.slept == pytest.approx(expected)
