"""The loops, sync and async, fast path and reference: every path behaves alike."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from redrive import Budget, Retry, RetryPolicy, errors, outcome, retry
from redrive.testing import FakeClock, instant
from tests.unit.engine.ways import WAYS, ZERO, Work, raiser

STEADY = RetryPolicy(max_attempts=3, backoff_base=1, jitter=0)


@pytest.mark.req("C-1")
def test_a_success_returns_immediately(layer: Retry, make_call: Callable[[Retry, Work], Work]) -> None:
    work, calls = raiser()
    call = make_call(layer, work)
    assert [call(), call()] == ["good", "good"]
    assert len(calls) == 2


@pytest.mark.req("C-1")
def test_a_success_after_failures_is_returned(layer: Retry, make_call: Callable[[Retry, Work], Work]) -> None:
    work, calls = raiser(OSError, OSError)
    assert make_call(layer, work)() == "good"
    assert len(calls) == 3


@pytest.mark.req("C-4")
def test_the_last_error_of_the_caller_is_raised(layer: Retry, make_call: Callable[[Retry, Work], Work]) -> None:
    work, calls = raiser(OSError, ConnectionError, TimeoutError)
    with pytest.raises(TimeoutError, match="failure 3") as caught:
        make_call(layer, work)()
    assert len(calls) == 3
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.spent) == (3, "attempts", True)
    (note,) = caught.value.__notes__
    assert "after 3 attempts in" in note
    assert note.endswith("(waits 0, 0 s): attempts spent; before it: OSError, ConnectionError")
    ours = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if "redrive/engine" in frame.filename]
    assert 1 <= len(ours) <= 4


@pytest.mark.req("C-4")
def test_a_permanent_error_is_not_retried(layer: Retry, make_call: Callable[[Retry, Work], Work]) -> None:
    work, calls = raiser(KeyError)
    with pytest.raises(KeyError) as caught:
        make_call(layer, work)()
    assert len(calls) == 1
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.spent) == (1, "not_retryable", False)
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.req("C-4")
def test_a_permanent_error_after_others_ends_the_retries(layer: Retry, make_call: Callable[[Retry, Work], Work]) -> None:
    work, calls = raiser(OSError, KeyError)
    with pytest.raises(KeyError) as caught:
        make_call(layer, work)()
    assert len(calls) == 2
    assert caught.value.__notes__[0].endswith("(waits 0 s): this error is not retried")


@pytest.mark.req("C-6")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("before", [0, 1])
def test_base_exceptions_are_never_retried(layer: Retry, kind: type[BaseException], before: int) -> None:
    work, calls = raiser(*[OSError] * before, kind)
    with pytest.raises(kind):
        layer.call(work)
    assert len(calls) == before + 1

    async def later() -> None:
        work()

    work, calls = raiser(*[OSError] * before, kind)
    if kind in (KeyboardInterrupt, SystemExit):
        coroutine = layer.acall(later)
        with pytest.raises(kind):
            _drive(coroutine)
    else:
        with pytest.raises(kind):
            asyncio.run(layer.acall(later))
    assert len(calls) == before + 1


def _drive(coroutine: Any) -> None:
    """Run it in a task, and re-raise base exceptions as the event loop does."""
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(coroutine)
        try:
            loop.run_until_complete(task)
        finally:
            task.exception()
    finally:
        loop.close()


@pytest.mark.req("C-6")
def test_rules_cannot_make_base_exceptions_retryable() -> None:
    work, calls = raiser(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        retry(ZERO, on=lambda _: True).call(work)
    assert len(calls) == 1


@pytest.mark.req("C-6")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_wait_ends_immediately(layer: Retry, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object, __: float) -> None:
        raise kind

    work, calls = raiser(OSError, OSError)
    monkeypatch.setattr(FakeClock, "sleep", interrupted)
    with instant(), pytest.raises(kind) as caught:
        layer.using(backoff_base=1).call(work)
    assert len(calls) == 1
    assert isinstance(caught.value.__context__, OSError)


@pytest.mark.req("C-1")
def test_results_can_be_rejected(make_call: Callable[[Retry, Work], Work]) -> None:
    layer = retry(ZERO, reject=lambda result: result == "bad", operation="o")
    work, calls = raiser(then="bad")
    with pytest.raises(errors.Rejected, match="o: the result was rejected") as caught:
        make_call(layer, work)()
    assert len(calls) == 3
    assert caught.value.result == "bad"
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "attempts"


@pytest.mark.req("C-1")
def test_rejected_results_are_retried_beside_custom_rules(make_call: Callable[[Retry, Work], Work]) -> None:
    for on in (KeyError, (KeyError, lambda _: None)):
        work, calls = raiser(then="bad")
        with pytest.raises(errors.Rejected):
            make_call(retry(ZERO, reject=lambda result: result == "bad", on=on), work)()
        assert len(calls) == 3


def test_an_error_in_reject_is_an_error_of_the_call(make_call: Callable[[Retry, Work], Work]) -> None:
    def broken(_: object) -> bool:
        raise ZeroDivisionError("mine")

    work, calls = raiser()
    with pytest.raises(ZeroDivisionError, match="mine"):
        make_call(retry(ZERO, reject=broken), work)()
    assert len(calls) == 1


@pytest.mark.req("C-9")
def test_a_successful_retry_refunds_its_cost(layer: Retry, make_call: Callable[[Retry, Work], Work]) -> None:
    budget = Budget(capacity=100, cost=10, refill=1, floor=0)
    work, _ = raiser(OSError, OSError)
    make_call(layer.using(budget=budget), work)()
    assert budget.left == 90  # two were charged, and the successful one was refunded
    make_call(layer.using(budget=budget), raiser()[0])()
    assert budget.left == 91


@pytest.mark.req("C-9")
def test_an_exhausted_budget_has_its_own_reason(layer: Retry, make_call: Callable[[Retry, Work], Work]) -> None:
    budget = Budget(capacity=10, cost=10, floor=0)
    work, calls = raiser(OSError, OSError, OSError)
    with pytest.raises(OSError, match="failure 2") as caught:
        make_call(layer.using(budget=budget), work)()
    assert len(calls) == 2
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.reason, ended.spent) == ("budget", True)
    assert "the retry budget is empty" in caught.value.__notes__[0]
    assert budget.denied == 1


# The surrounding context


def test_a_call_restores_the_context(layer: Retry, make_call: Callable[[Retry, Work], Work]) -> None:
    before = {name: value for name, value in contextvars.copy_context().items() if name.name != "redrive_cell"}
    make_call(layer, raiser(OSError)[0])()
    after = {name: value for name, value in contextvars.copy_context().items() if name.name != "redrive_cell"}
    assert before == after


def test_context_changes_in_an_attempt_are_visible_outside() -> None:
    """Sync and awaited code runs in the caller's own context."""
    mine: contextvars.ContextVar[int] = contextvars.ContextVar("mine", default=0)
    retry(ZERO).call(mine.set, 5)
    assert mine.get() == 5

    async def later() -> None:
        mine.set(6)

    async def main() -> int:
        await retry(ZERO).acall(later)
        return mine.get()

    assert asyncio.run(main()) == 6


@pytest.mark.parametrize("raised", [RecursionError, MemoryError, StopIteration])
def test_interpreter_errors_can_be_retried(raised: type[Exception]) -> None:
    work, calls = raiser(raised, raised, raised)
    with pytest.raises(raised):
        retry(ZERO, on=raised).call(work)
    assert len(calls) == 3


def test_wrappers_of_async_functions_are_coroutine_functions() -> None:
    async def later() -> None: ...

    assert all(inspect.iscoroutinefunction(retry(max_attempts=3, **options)(later)) for options in WAYS.values())
