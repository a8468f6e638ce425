"""The loops, plain and async, short and whole: every way through them behaves alike."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from redrive import Budget, Retry, RetryPolicy, errors, outcome, retry
from redrive.testing import FakeClock, instant

ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)
STEADY = RetryPolicy(max_attempts=3, backoff_base=1, jitter=0)
WAYS: dict[str, dict[str, Any]] = {
    "untimed": {"attempt_timeout": None},
    "timed": {},
    "limited": {"timeout": 60.0},
    "only limited": {"timeout": 60.0, "attempt_timeout": None},
    "keyed": {"key": "a:b:c:d:v1"},
    "looked at": {"reject": lambda result: result == "bad"},
}
Work: TypeAlias = Callable[[], Any]


@pytest.fixture(params=WAYS)
def layer(request: pytest.FixtureRequest) -> Retry:
    return retry(max_attempts=3, backoff_base=0, jitter=0, on=OSError, **WAYS[request.param])


@pytest.fixture(params=["plain", "async"])
def made(request: pytest.FixtureRequest) -> Callable[[Retry, Work], Work]:
    """From a layer and a piece of work to the call, in one colour."""

    def plain(layer: Retry, work: Work) -> Work:
        return layer(work)

    def later(layer: Retry, work: Work) -> Work:
        @layer
        async def coroutine() -> Any:
            return work()

        return lambda: asyncio.run(coroutine())

    return plain if request.param == "plain" else later


def raiser(*errors: type[BaseException], then: Any = "good") -> tuple[Work, list[int]]:
    """Work that raises these in turn, then gives a result; and how often it was asked."""
    calls: list[int] = []

    def work() -> Any:
        calls.append(1)
        if len(calls) <= len(errors):
            raise errors[len(calls) - 1](f"failure {len(calls)}")
        return then

    return work, calls


@pytest.mark.req("C-1")
def test_success_at_once(layer: Retry, made: Callable[[Retry, Work], Work]) -> None:
    work, calls = raiser()
    call = made(layer, work)
    assert [call(), call()] == ["good", "good"]
    assert len(calls) == 2


@pytest.mark.req("C-1")
def test_success_after_failures(layer: Retry, made: Callable[[Retry, Work], Work]) -> None:
    work, calls = raiser(OSError, OSError)
    assert made(layer, work)() == "good"
    assert len(calls) == 3


@pytest.mark.req("C-4")
def test_the_callers_own_last_error_is_raised(layer: Retry, made: Callable[[Retry, Work], Work]) -> None:
    work, calls = raiser(OSError, ConnectionError, TimeoutError)
    with pytest.raises(TimeoutError, match="failure 3") as caught:
        made(layer, work)()
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
def test_an_error_not_worth_trying_again(layer: Retry, made: Callable[[Retry, Work], Work]) -> None:
    work, calls = raiser(KeyError)
    with pytest.raises(KeyError) as caught:
        made(layer, work)()
    assert len(calls) == 1
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.spent) == (1, "not_retryable", False)
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.req("C-4")
def test_an_error_not_worth_trying_again_after_others(layer: Retry, made: Callable[[Retry, Work], Work]) -> None:
    work, calls = raiser(OSError, KeyError)
    with pytest.raises(KeyError) as caught:
        made(layer, work)()
    assert len(calls) == 2
    assert caught.value.__notes__[0].endswith("(waits 0 s): not worth trying again")


@pytest.mark.req("C-6")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("before", [0, 1])
def test_what_ends_a_program_is_never_retried(layer: Retry, kind: type[BaseException], before: int) -> None:
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
    """Run it in a task, and let what ends a program out as the event loop does."""
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
def test_rules_cannot_ask_for_them() -> None:
    work, calls = raiser(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        retry(ZERO, on=lambda _: True).call(work)
    assert len(calls) == 1


@pytest.mark.req("C-6")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_wait_leaves_at_once(layer: Retry, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object, __: float) -> None:
        raise kind

    work, calls = raiser(OSError, OSError)
    monkeypatch.setattr(FakeClock, "sleep", interrupted)
    with instant(), pytest.raises(kind) as caught:
        layer.using(backoff_base=1).call(work)
    assert len(calls) == 1
    assert isinstance(caught.value.__context__, OSError)


@pytest.mark.req("C-1")
def test_results_can_be_rejected(made: Callable[[Retry, Work], Work]) -> None:
    layer = retry(ZERO, reject=lambda result: result == "bad", operation="o")
    work, calls = raiser(then="bad")
    with pytest.raises(errors.Rejected, match="o: the result was rejected") as caught:
        made(layer, work)()
    assert len(calls) == 3
    assert caught.value.result == "bad"
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "attempts"


@pytest.mark.req("C-1")
def test_rejection_beside_rules_of_the_users_own(made: Callable[[Retry, Work], Work]) -> None:
    for on in (KeyError, (KeyError, lambda _: None)):
        work, calls = raiser(then="bad")
        with pytest.raises(errors.Rejected):
            made(retry(ZERO, reject=lambda result: result == "bad", on=on), work)()
        assert len(calls) == 3


def test_a_predicate_that_raises_is_an_error_of_the_call(made: Callable[[Retry, Work], Work]) -> None:
    def broken(_: object) -> bool:
        raise ZeroDivisionError("mine")

    work, calls = raiser()
    with pytest.raises(ZeroDivisionError, match="mine"):
        made(retry(ZERO, reject=broken), work)()
    assert len(calls) == 1


@pytest.mark.req("C-9")
def test_a_retry_that_succeeds_gives_its_cost_back(layer: Retry, made: Callable[[Retry, Work], Work]) -> None:
    budget = Budget(capacity=100, cost=10, refill=1, floor=0)
    work, _ = raiser(OSError, OSError)
    made(layer.using(budget=budget), work)()
    assert budget.left == 90  # two were taken, the one that worked came back
    made(layer.using(budget=budget), raiser()[0])()
    assert budget.left == 91


@pytest.mark.req("C-9")
def test_a_spent_budget_is_a_reason_of_its_own(layer: Retry, made: Callable[[Retry, Work], Work]) -> None:
    budget = Budget(capacity=10, cost=10, floor=0)
    work, calls = raiser(OSError, OSError, OSError)
    with pytest.raises(OSError, match="failure 2") as caught:
        made(layer.using(budget=budget), work)()
    assert len(calls) == 2
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.reason, ended.spent) == ("budget", True)
    assert "the shared retry budget is spent" in caught.value.__notes__[0]
    assert budget.denied == 1


def test_zero_waits_are_not_slept(layer: Retry, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("redrive.engine.loop.sleep", slept.append)
    work, _ = raiser(OSError, OSError)
    layer.call(work)
    assert slept == []
    with instant() as clock:
        work, _ = raiser(OSError, OSError)
        layer.call(work)
    assert clock.slept == []


def test_a_zero_wait_in_async_code_lets_others_run(layer: Retry) -> None:
    order: list[str] = []

    @layer
    async def call() -> None:
        order.append("attempt")
        if order.count("attempt") < 3:
            raise OSError

    async def other() -> None:
        for _ in range(8):
            order.append("other")
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(call(), other())

    asyncio.run(main())
    assert order.index("other") < order.index("attempt", 1)


def test_a_hundred_thousand_attempts() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise OSError("down")

    layer = retry(max_attempts=100_000, backoff_base=1, jitter=1, on=OSError)
    with instant() as clock, pytest.raises(OSError, match="down") as caught:
        layer.call(work)
    assert calls == 100_000
    assert len(clock.slept) == 99_999
    assert max(clock.slept) <= 6
    note = caught.value.__notes__[0]
    assert "after 100000 attempts" in note
    assert ", … s)" in note
    assert len(note) < 300


def test_a_hundred_thousand_attempts_without_a_stage() -> None:
    calls = 0

    @retry(RetryPolicy(max_attempts=100_000, backoff_base=0, jitter=0), on=OSError, attempt_timeout=None)
    def work() -> None:
        nonlocal calls
        calls += 1
        raise OSError("down")

    with pytest.raises(OSError, match="down"):
        work()
    assert calls == 100_000


# No cycles


@pytest.mark.req("C-4")
def test_no_reference_cycle_is_left(layer: Retry) -> None:
    @layer
    def call() -> None:
        raise OSError

    @layer
    def nested() -> None:
        call()

    def go() -> None:
        for each in (call, nested):
            try:
                each()
            except OSError:
                pass

    assert garbage(go) == 0


@pytest.mark.req("C-4")
def test_no_reference_cycle_is_left_in_a_task(layer: Retry) -> None:
    @layer
    async def call() -> None:
        await asyncio.sleep(0)
        raise OSError

    @layer
    async def nested() -> None:
        await call()

    async def main() -> int:
        async def go() -> None:
            for each in (call, nested):
                try:
                    await each()
                except OSError:
                    pass

        await go()
        gc.collect()
        gc.freeze()  # what others left behind is not this test's
        gc.disable()
        try:
            for _ in range(20):
                await go()
            return gc.collect()
        finally:
            gc.enable()
            gc.unfreeze()

    assert asyncio.run(main()) == 0


@pytest.mark.req("C-4")
def test_no_reference_cycle_is_left_by_what_is_called_just_once() -> None:
    def go() -> None:
        try:
            retry(ZERO, on=OSError).call(raiser(OSError, OSError, OSError)[0])
        except OSError:
            pass

    assert garbage(go) == 0


def garbage(go: Callable[[], None]) -> int:
    go()
    gc.collect()
    gc.freeze()  # what others left behind is not this test's
    gc.disable()
    try:
        for _ in range(20):
            go()
        return gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()


# The world around


def test_a_context_is_left_as_it_was(layer: Retry, made: Callable[[Retry, Work], Work]) -> None:
    before = {name: value for name, value in contextvars.copy_context().items() if name.name != "redrive_cell"}
    made(layer, raiser(OSError)[0])()
    after = {name: value for name, value in contextvars.copy_context().items() if name.name != "redrive_cell"}
    assert before == after


def test_changes_of_the_context_in_an_attempt_are_seen_outside() -> None:
    """Plain code runs in the caller's own context, and so does awaited code."""
    mine: contextvars.ContextVar[int] = contextvars.ContextVar("mine", default=0)
    retry(ZERO).call(mine.set, 5)
    assert mine.get() == 5

    async def later() -> None:
        mine.set(6)

    async def main() -> int:
        await retry(ZERO).acall(later)
        return mine.get()

    assert asyncio.run(main()) == 6


def test_a_clock_that_jumps_backwards() -> None:
    class Jumping(FakeClock):
        def monotonic(self) -> float:
            self._passed -= 100
            return super().monotonic()

    from redrive.core.context import Stage, staged

    with staged(Stage(Jumping())):
        for options in WAYS.values():
            work, calls = raiser(OSError, OSError, OSError)
            with pytest.raises(OSError, match="failure 3") as caught:
                retry(max_attempts=3, backoff_base=1, jitter=0, on=OSError, **options).call(work)
            assert len(calls) == 3
            assert outcome(caught.value) is not None


@pytest.mark.parametrize("raised", [RecursionError, MemoryError, StopIteration])
def test_errors_of_the_interpreter_are_errors(raised: type[Exception]) -> None:
    work, calls = raiser(raised, raised, raised)
    with pytest.raises(raised):
        retry(ZERO, on=raised).call(work)
    assert len(calls) == 3


def test_wrappers_are_of_their_colour() -> None:
    async def later() -> None: ...

    assert all(inspect.iscoroutinefunction(retry(max_attempts=3, **options)(later)) for options in WAYS.values())


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with instant() as clock:
        yield clock


@pytest.mark.req("R-5")
def test_a_wait_that_does_not_fit_is_not_slept(clock: FakeClock, made: Callable[[Retry, Work], Work]) -> None:
    layer = retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=6), on=OSError)
    work, calls = raiser(*[OSError] * 9)
    with pytest.raises(OSError, match="failure 3") as caught:
        made(layer, work)()
    assert (len(calls), clock.slept) == (3, [1, 2])
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.reason, ended.elapsed) == ("timeout", 3)
    assert ended.retry_at is not None
    assert (ended.retry_at - clock.now()).total_seconds() == 4


@pytest.mark.req("R-5")
def test_one_long_attempt_is_not_interrupted(clock: FakeClock) -> None:
    layer = retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=6), on=OSError)

    def slow() -> str:
        clock.advance(100)
        return "late"

    assert layer.call(slow) == "late"

    def slow_and_broken() -> None:
        clock.advance(100)
        raise OSError("late")

    with pytest.raises(OSError, match="late") as caught:
        layer.call(slow_and_broken)
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "timeout")


@pytest.mark.req("R-5")
@pytest.mark.parametrize("attempts_before", [1, 2])
def test_oversleeping_raises_the_last_error(
    clock: FakeClock, made: Callable[[Retry, Work], Work], monkeypatch: pytest.MonkeyPatch, attempts_before: int
) -> None:
    sleep = FakeClock.sleep

    def heavy(clock: FakeClock, wait: float) -> None:
        sleep(clock, wait if len(clock.slept) < attempts_before - 1 else wait + 100)

    monkeypatch.setattr(FakeClock, "sleep", heavy)
    budget = Budget(capacity=100, cost=10, floor=0)
    layer = retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=30), on=OSError, budget=budget)
    work, calls = raiser(*[OSError] * 9)
    with pytest.raises(OSError, match=f"failure {attempts_before}") as caught:
        made(layer, work)()
    assert len(calls) == attempts_before
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (attempts_before, "timeout")
    assert budget.left == 100 - 10 * (attempts_before - 1)  # the retry that was not made is not paid


def test_a_rule_that_changes_its_mind_does_not_hide_the_error(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = FakeClock.sleep
    monkeypatch.setattr(FakeClock, "sleep", lambda clock, wait: sleep(clock, wait + 100))
    asked = 0

    def rule(_: Exception) -> bool:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise ZeroDivisionError
        return True

    layer = retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=30), on=rule)
    with pytest.raises(OSError, match="failure 1"):
        layer.call(raiser(OSError)[0])
