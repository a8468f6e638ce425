"""Blocks: `for attempt in retry.attempts(): with attempt: ...`, in both colours."""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections.abc import Iterator
from datetime import timedelta

import pytest

from redrive import Breaker, Budget, Key, RetryPolicy, attempts, current, deadline, errors, journal, outcome, retry
from redrive.testing import FakeClock, inject, instant

STEADY = RetryPolicy(max_attempts=3, backoff_base=1, jitter=0)
ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with instant() as clock:
        yield clock


@pytest.mark.req("C-1")
def test_a_plain_block_is_tried_again(clock: FakeClock) -> None:
    numbers = []
    for attempt in retry(STEADY, on=ValueError).attempts():
        with attempt:
            numbers.append(attempt.number)
            if attempt.number < 3:
                raise ValueError
    assert numbers == [1, 2, 3]
    assert clock.slept == [1, 2]


async def _async_block(numbers: list[int]) -> None:
    async for attempt in retry(STEADY, on=ValueError).attempts():
        with attempt:
            numbers.append(attempt.number)
            if attempt.number < 3:
                raise ValueError


@pytest.mark.req("C-1")
def test_an_async_block_is_tried_again(clock: FakeClock) -> None:
    numbers: list[int] = []
    asyncio.run(_async_block(numbers))
    assert numbers == [1, 2, 3]
    assert clock.slept == [1, 2]


@pytest.mark.req("C-4")
def test_a_spent_block_raises_the_callers_own_error(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        for attempt in retry(STEADY, on=ValueError).attempts():
            with attempt:
                raise ValueError("mine")
    mine = caught.value
    assert len(traceback.extract_tb(mine.__traceback__)) == 1
    ended = outcome(mine)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.elapsed) == (3, "attempts", 3.0)
    assert ended.layer is not None
    assert ended.layer.endswith("test_a_spent_block_raises_the_callers_own_error")


@pytest.mark.req("C-1")
def test_the_operation_is_the_function_that_has_the_block() -> None:
    def mine() -> str | None:
        for attempt in attempts():
            with attempt:
                return current().operation
        return None

    assert mine() == f"{__name__}.test_the_operation_is_the_function_that_has_the_block.<locals>.mine"
    for attempt in attempts(operation="crm.pull"):
        with attempt:
            assert current().operation == "crm.pull"


@pytest.mark.req("C-1")
def test_an_attempt_knows_its_context(clock: FakeClock) -> None:
    key = Key("shop", "ann", "o-1", "receipt")
    for attempt in retry(STEADY, attempt_timeout=7, key=key, operation="o").attempts():
        with attempt as entered:
            assert entered is attempt
            assert (attempt.max_attempts, attempt.operation, attempt.remaining, attempt.key) == (3, "o", 7.0, key)
            assert current().key == key
            assert repr(attempt) == "Attempt(number=1, operation='o', remaining=7.0)"
    assert current().operation is None


def test_a_key_may_be_a_function() -> None:
    for attempt in retry(key=lambda: "a:b:c:d:v1").attempts():
        with attempt:
            assert current().key == Key("a", "b", "c", "d")


@pytest.mark.req("C-1")
def test_a_result_can_be_rejected(clock: FakeClock) -> None:
    with pytest.raises(errors.Rejected, match="too few") as caught:
        for attempt in retry(STEADY).attempts():
            with attempt:
                attempt.reject("too few", result=[1])
    assert caught.value.result == [1]
    assert len(clock.slept) == 2


@pytest.mark.parametrize("how", ["break", "continue", "return"])
def test_leaving_the_body_early_is_success(how: str) -> None:
    def block() -> int:
        entered = 0
        for attempt in attempts():
            with attempt:
                entered += 1
                if how == "break":
                    break
                if how == "continue":
                    continue
                return entered
        return entered

    assert block() == 1


def test_a_return_in_an_async_block_leaves_nothing_to_clean_up() -> None:
    async def block() -> int:
        async for attempt in attempts():
            with attempt:
                return attempt.number
        return 0

    async def main() -> None:
        assert await block() == 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


@pytest.mark.req("C-11")
def test_for_in_async_code_is_refused() -> None:
    async def wrong() -> None:
        for attempt in attempts():
            with attempt:
                pass

    with pytest.raises(TypeError, match="async for"):
        asyncio.run(wrong())


@pytest.mark.req("C-11")
def test_for_in_an_async_generator_is_refused() -> None:
    async def wrong() -> None:
        async def items() -> object:
            for attempt in attempts():
                with attempt:
                    yield 1

        async for _ in items():  # type: ignore[attr-defined]
            pass

    with pytest.raises(TypeError, match="async for"):
        asyncio.run(wrong())


@pytest.mark.req("C-11")
def test_an_attempt_that_was_not_entered_is_told() -> None:
    with pytest.raises(RuntimeError, match="with attempt:"):
        for _ in attempts():
            pass


@pytest.mark.req("C-11")
def test_an_attempt_that_was_not_entered_is_told_without_waiting_again(clock: FakeClock) -> None:
    with pytest.raises(RuntimeError, match="with attempt:"):
        for attempt in retry(STEADY, on=ValueError).attempts():
            if attempt.number == 1:
                with attempt:
                    raise ValueError
    assert clock.slept == [1]


@pytest.mark.req("C-11")
def test_an_async_attempt_that_was_not_entered_is_told() -> None:
    async def wrong() -> None:
        async for _ in attempts():
            pass

    with pytest.raises(RuntimeError, match="with attempt:"):
        asyncio.run(wrong())


@pytest.mark.req("C-11")
def test_attempts_are_for_one_use() -> None:
    once = attempts()
    for attempt in once:
        with attempt:
            pass
    with pytest.raises(RuntimeError, match=r"call attempts\(\) again"):
        iter(once)


@pytest.mark.req("C-11")
def test_an_attempt_is_entered_once() -> None:
    for attempt in attempts():
        with attempt:
            pass
        with pytest.raises(RuntimeError, match="entered once"), attempt:
            pass


@pytest.mark.req("C-11")
def test_only_the_attempts_of_a_block_can_be_entered() -> None:
    with pytest.raises(RuntimeError, match="can be entered"), current():
        pass


@pytest.mark.req("C-11")
def test_what_a_block_cannot_do_is_refused() -> None:
    with pytest.raises(TypeError, match=r"attempt\.reject\(\)"):
        attempts(reject=bool)
    with pytest.raises(TypeError, match="give a Key"):
        attempts(key="a:{b}:c:d:v1")


@pytest.mark.req("C-6")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_what_ends_a_program_is_never_retried(clock: FakeClock, kind: type[BaseException]) -> None:
    entered = 0
    with pytest.raises(kind):
        for attempt in retry(STEADY, on=lambda _: True).attempts():
            with attempt:
                entered += 1
                raise kind
    assert entered == 1


@pytest.mark.req("C-8")
def test_the_deadline_is_that_of_the_block_and_of_what_is_around(clock: FakeClock) -> None:
    with deadline(3):
        for attempt in retry(STEADY, attempt_timeout=7).attempts():
            with attempt:
                assert current().remaining == 3
                with deadline(5):
                    assert current().remaining == 3
                with deadline(1):
                    assert current().remaining == 1
    assert current().remaining is None


@pytest.mark.req("C-8")
def test_no_attempt_starts_past_the_deadline(clock: FakeClock) -> None:
    with deadline(1):
        clock.advance(1)
        with pytest.raises(errors.AttemptTimeout, match="had passed"):
            for attempt in attempts():
                with attempt:
                    pytest.fail("began")


@pytest.mark.req("R-5")
def test_a_wait_that_does_not_fit_is_not_slept(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        for attempt in retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=2.5), on=ValueError).attempts():
            with attempt:
                raise ValueError("mine")
    assert clock.slept == [1]
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "timeout"
    assert ended.retry_at == clock.now() + timedelta(seconds=2)


@pytest.mark.req("R-5")
@pytest.mark.parametrize("colour", ["plain", "async"])
def test_a_block_that_overslept_raises_its_last_error(clock: FakeClock, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = FakeClock.sleep
    monkeypatch.setattr(FakeClock, "sleep", lambda self, wait: sleep(self, wait * 5))
    layer = retry(RetryPolicy(max_attempts=9, backoff_base=1, jitter=0, timeout=2.5), on=ValueError)

    def plain() -> None:
        for attempt in layer.attempts():
            with attempt:
                raise ValueError("mine")

    async def later() -> None:
        async for attempt in layer.attempts():
            with attempt:
                raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        plain() if colour == "plain" else asyncio.run(later())
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "timeout")
    ours = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if "redrive/engine" in frame.filename]
    assert len(ours) <= 4


@pytest.mark.req("C-12")
def test_a_block_is_behind_its_breaker(clock: FakeClock) -> None:
    breaker = Breaker(min_calls=1, failure_rate=0.1, open_for=5)
    layer = retry(STEADY, on=ValueError, breaker=breaker, operation="o")
    with pytest.raises(ValueError, match="mine") as caught:
        for attempt in layer.attempts():
            with attempt:
                raise ValueError("mine")
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "breaker_open")
    with pytest.raises(errors.BreakerOpen):
        for attempt in layer.attempts():
            with attempt:
                pytest.fail("began")
    clock.advance(6)
    with pytest.raises(KeyboardInterrupt):
        for attempt in layer.attempts():
            with attempt:
                raise KeyboardInterrupt  # says nothing: the next probe may go at once
    for attempt in layer.attempts():
        with attempt:
            pass
    assert breaker.state == "closed"


@pytest.mark.req("C-7")
def test_blocks_inside_blocks_do_not_multiply(clock: FakeClock) -> None:
    calls = 0

    def inner() -> None:
        nonlocal calls
        for attempt in retry(ZERO, on=ValueError).attempts():
            with attempt:
                calls += 1
                raise ValueError("inner")

    with pytest.raises(ValueError, match="inner"):
        for attempt in retry(ZERO, on=ValueError).attempts():
            with attempt:
                inner()
    assert calls == 3


@pytest.mark.req("C-9")
def test_a_block_pays_from_the_budget_and_gives_back(clock: FakeClock) -> None:
    budget = Budget(capacity=20, cost=14, floor=0)
    for attempt in retry(ZERO, on=ValueError, budget=budget).attempts():
        with attempt:
            if attempt.number == 1:
                raise ValueError
            assert budget.left == 6
    assert budget.left == 20


@pytest.mark.req("C-1")
def test_fields_and_the_key_are_in_every_record(clock: FakeClock) -> None:
    ring = journal.ring()
    unsubscribe = journal.subscribe(ring, inline=True, every=True)
    try:
        for attempt in retry(ZERO, on=ValueError, fields={"tenant": "acme"}, key=Key("a", "b", "c", "d")).attempts():
            with attempt:
                if attempt.number == 1:
                    raise ValueError
    finally:
        unsubscribe()
    assert [record.kind for record in ring.records] == ["retry", "recovered"]
    assert {record.fields["tenant"] for record in ring.records} == {"acme"}
    assert {record.fields["idempotency_key"] for record in ring.records} == {"a:b:c:d:v1"}


def test_faults_are_ordered_for_blocks_too(clock: FakeClock) -> None:
    layer = retry(STEADY, on=ValueError)
    bodies = []
    with inject(layer, ValueError, ValueError("two"), None) as injected:
        for attempt in layer.attempts():
            with attempt:
                bodies.append(attempt.number)
    assert bodies == [3]
    assert (injected.calls, injected.left) == (3, 0)
    assert clock.slept == [1, 2]

    async def later() -> None:
        async for attempt in layer.attempts():
            with attempt:
                bodies.append(attempt.number)

    with inject(layer, ValueError):
        asyncio.run(later())
    assert bodies == [3, 2]
    with inject(layer, KeyError), pytest.raises(KeyError):
        for attempt in layer.attempts():
            with attempt:
                pytest.fail("began")


@pytest.mark.req("C-4")
@pytest.mark.parametrize("how", ["spent", "overslept", "interrupted"])
def test_no_reference_cycle_is_left(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = retry(RetryPolicy(max_attempts=3, backoff_base=1, jitter=0, timeout=20), on=ValueError)
    sleep = FakeClock.sleep

    def slept(clock: FakeClock, wait: float) -> None:
        sleep(clock, wait * 50 if how == "overslept" else wait)
        if how == "interrupted":
            raise KeyboardInterrupt

    monkeypatch.setattr(FakeClock, "sleep", slept)

    def block() -> None:
        for attempt in layer.attempts():
            with attempt:
                raise ValueError

    def go() -> None:
        with instant():
            try:
                block()
            except (ValueError, KeyboardInterrupt):
                pass

    assert _garbage(go) == 0


@pytest.mark.req("C-4")
def test_no_reference_cycle_is_left_by_an_async_block() -> None:
    async def block() -> None:
        async for attempt in retry(ZERO, on=ValueError).attempts():
            with attempt:
                raise ValueError

    async def go() -> None:
        try:
            await block()
        except ValueError:
            pass

    async def main() -> int:
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


def _garbage(go: object) -> int:
    assert callable(go)
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
