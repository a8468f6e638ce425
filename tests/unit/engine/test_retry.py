"""Retry: arguments, options and errors of one object with four uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive import Budget, Retry, RetryPolicy, acall, attempts, call, current, errors, outcome, retry
from redrive.testing import FakeClock, inject
from tests.unit.engine.flaky import STEADY, Flaky

pytestmark = [pytest.mark.req("C-1"), pytest.mark.usefixtures("clock")]


# The four uses


def test_a_function_can_be_decorated(clock: FakeClock) -> None:
    flaky = Flaky()

    @retry
    def bare(*args: Any, **kwargs: Any) -> Any:
        return flaky.plain(*args, **kwargs)

    assert bare(1, b=2) == ((1,), {"b": 2})
    assert flaky.calls == 3
    assert clock.slept == [0.25, 0.5]


def test_a_function_can_be_decorated_with_options(clock: FakeClock) -> None:
    flaky = Flaky()

    @retry(STEADY, on=ConnectionError)
    async def later(*args: Any, **kwargs: Any) -> Any:
        return await flaky.later(*args, **kwargs)

    assert asyncio.run(later(1, b=2)) == ((1,), {"b": 2})
    assert clock.slept == [1, 2]


def test_call_and_acall_retry() -> None:
    layer = retry(STEADY)
    assert layer.call(Flaky().plain, 1, b=2) == ((1,), {"b": 2})
    assert asyncio.run(layer.acall(Flaky().later, 1, b=2)) == ((1,), {"b": 2})
    assert call(Flaky().plain, 1) == ((1,), {})
    assert asyncio.run(acall(Flaky().later, 1)) == ((1,), {})


def test_parameters_of_the_function_may_have_any_name() -> None:
    """`fn`, `self` and `policy` may be names of the user's parameters."""
    assert call(Flaky().plain, fn=1, self=2, policy=3) == ((), {"fn": 1, "self": 2, "policy": 3})
    assert retry(Flaky().plain)(fn=1, self=2) == ((), {"fn": 1, "self": 2})


def test_a_loop_over_attempts_retries() -> None:
    flaky = Flaky()
    for attempt in attempts(STEADY):
        with attempt:
            flaky.plain()
    assert flaky.calls == 3


# The defaults


@pytest.mark.req("C-2")
def test_the_defaults_are_those_of_a_service_call(clock: FakeClock) -> None:
    for layer in (retry(), retry(None)):
        assert layer.policy == RetryPolicy(max_attempts=3, backoff_base=0.25, backoff_max=5, jitter=0.25)
        assert layer.settings.attempt_timeout == 10
    assert retry(RetryPolicy()).settings.attempt_timeout == 10
    flaky = Flaky(error=KeyError)
    with pytest.raises(KeyError):
        call(flaky.plain)
    assert flaky.calls == 1


def test_policy_fields_by_name_change_the_service_defaults() -> None:
    assert retry(max_attempts=7).policy == RetryPolicy(max_attempts=7, backoff_base=0.25, backoff_max=5, jitter=0.25)
    assert retry(max_attempts=7).using(jitter=0).policy == RetryPolicy(7, 0.25, 5, 0)


# Names


def test_the_operation_is_the_function_unless_it_is_passed() -> None:
    @retry
    def mine() -> str | None:
        return current().operation

    assert mine() == f"{__name__}.test_the_operation_is_the_function_unless_it_is_passed.<locals>.mine"
    assert retry(operation="crm.pull").call(mine.__wrapped__) == "crm.pull"  # type: ignore[attr-defined]
    assert retry().operation is None
    assert retry(operation="x").operation == "x"
    with pytest.raises(ValueError, match="invalid literal") as caught:
        call(int, "x")
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.layer == "builtins.int"
    assert retry([].append).__redrive__.operation == "builtins.list.append"  # type: ignore[attr-defined]


def test_a_retry_prints_itself() -> None:
    text = "RetryPolicy(max_attempts=3, backoff_base=1.0, backoff_max=60.0, jitter=0.0, timeout=None)"
    assert repr(retry(STEADY)) == f"Retry({text})"
    assert repr(retry(STEADY, operation="crm")) == f"Retry(crm: {text})"


# using


def test_using_is_a_copy_that_shares_the_budget() -> None:
    budget = Budget(capacity=30, cost=14, floor=0)
    crm = retry(STEADY, budget=budget, operation="crm")
    other = crm.using(max_attempts=2, operation="other")
    assert (crm.policy.max_attempts, other.policy.max_attempts) == (3, 2)
    assert crm.operation == "crm"
    assert other.settings.budget is budget
    with pytest.raises(ConnectionError):
        other.call(Flaky(9).plain)
    assert budget.left == 16
    with pytest.raises(ConnectionError) as caught:
        crm.call(Flaky(9).plain)
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.reason, ended.attempts) == ("budget", 2)


def test_using_another_policy_changes_the_waits_unless_a_backoff_was_passed(clock: FakeClock) -> None:
    retry(STEADY).using(RetryPolicy(max_attempts=2, backoff_base=5, jitter=0)).call(Flaky(1).plain)
    retry(STEADY, backoff=lambda attempt, draw: 7).using(max_attempts=2).call(Flaky(1).plain)
    retry(STEADY, backoff=lambda attempt, draw: 7).using(backoff=None).call(Flaky(1).plain)
    retry(STEADY).using(backoff_base=3).call(Flaky(1).plain)
    assert clock.slept == [5, 7, 1, 3]


def test_faults_for_a_retry_reach_its_copies_and_functions() -> None:
    crm = retry(STEADY)
    with inject(crm, ConnectionError) as injected:
        crm.using(max_attempts=2).call(Flaky(0).plain)
        crm(Flaky(0).plain)()
    assert injected.calls == 3


def test_a_function_may_be_decorated_twice() -> None:
    flaky = Flaky(9)
    with pytest.raises(ConnectionError):
        retry(retry(flaky.plain))()
    assert flaky.calls == 3


# Rejected arguments


@pytest.mark.req("C-11")
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (5, "retry is for functions and RetryPolicy objects, not int 5"),
        ("crm", "not str 'crm'"),
        ({"max_attempts": 3}, "not dict"),
        (ValueError, r"ValueError is a class; pass errors as retry\(on=ValueError\)"),
        (Flaky, "Flaky is a class; decorate the method that may fail"),
        (property(lambda self: 1), "not property"),
        (retry(), "is already a retry"),
    ],
)
def test_values_that_cannot_be_decorated_are_rejected(wrong: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        retry(wrong)


@pytest.mark.req("C-11")
def test_a_coroutine_object_is_rejected() -> None:
    uses: list[Callable[[Any], Any]] = [retry, retry().call, lambda given: asyncio.run(retry().acall(given))]
    for wrong in uses:
        with pytest.raises(TypeError, match="pass the function, not its result"):
            wrong(Flaky().later())


@pytest.mark.req("C-11")
def test_sync_and_async_calls_of_the_wrong_function_are_rejected() -> None:
    def items() -> Iterator[int]:
        yield 1

    async def later_items() -> Any:
        yield 1

    with pytest.raises(TypeError, match=r"later is async; use `await retry.acall\(\.\.\.\)`"):
        call(Flaky().later)  # type: ignore[unused-coroutine]
    for wrong in (items, later_items):
        with pytest.raises(TypeError, match="is a generator; decorate it"):
            call(wrong)
        with pytest.raises(TypeError, match="is a generator; decorate it"):
            asyncio.run(acall(wrong))  # type: ignore[arg-type]


@pytest.mark.req("C-11")
def test_a_policy_with_its_fields_is_rejected() -> None:
    with pytest.raises(TypeError, match="pass a policy, or its fields by name, not both: max_attempts"):
        retry(STEADY, max_attempts=5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="not both: jitter"):
        retry().using(STEADY, jitter=0)
    with pytest.raises(TypeError, match="not both"):
        attempts(STEADY, timeout=5)


@pytest.mark.req("C-11")
def test_a_function_with_options_is_rejected() -> None:
    with pytest.raises(TypeError, match="a RetryPolicy and options, or just a function"):
        retry(Flaky().plain, max_attempts=3)  # type: ignore[call-overload]


@pytest.mark.req("C-11")
@pytest.mark.parametrize("colour", ["wrapper", "timeless", "reject", "call"])
def test_a_sync_function_that_returns_an_awaitable_is_rejected(colour: str) -> None:
    async def hidden() -> int:
        return 1

    def disguised() -> Any:
        return hidden()

    layer = {
        "wrapper": retry(),
        "timeless": retry(attempt_timeout=None),
        "reject": retry(reject=lambda result: result.missing, on=AttributeError),
        "call": retry(),
    }[colour]
    with pytest.raises(TypeError, match="returned an awaitable"):
        layer.call(disguised) if colour == "call" else layer(disguised)()


@pytest.mark.req("C-11")
def test_a_sync_function_that_sometimes_returns_an_awaitable_is_rejected_each_time() -> None:
    async def hidden() -> int:
        return 1

    @retry(attempt_timeout=None)
    def mixed(value: Any) -> Any:
        return value

    for value in (1, "one", None):
        assert mixed(value) == value
        with pytest.raises(TypeError, match="returned an awaitable"):
            mixed(hidden())


def test_a_retry_is_its_own_type() -> None:
    assert isinstance(retry(), Retry)
    with pytest.raises(errors.Rejected):
        retry(STEADY, reject=lambda _: True).call(int)
