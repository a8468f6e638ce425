"""Blocks: `for attempt in retry.attempts(): with attempt: ...`, sync and async."""

from __future__ import annotations

import asyncio
import traceback

import pytest

from redrive import Key, RetryPolicy, attempts, current, errors, outcome, retry
from redrive.testing import FakeClock

STEADY = RetryPolicy(max_attempts=3, backoff_base=1, jitter=0)
ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)


@pytest.mark.req("C-1")
def test_a_sync_block_is_retried(clock: FakeClock) -> None:
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
def test_an_async_block_is_retried(clock: FakeClock) -> None:
    numbers: list[int] = []
    asyncio.run(_async_block(numbers))
    assert numbers == [1, 2, 3]
    assert clock.slept == [1, 2]


@pytest.mark.req("C-4")
def test_an_exhausted_block_raises_the_callers_error(clock: FakeClock) -> None:
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
    assert ended.layer.endswith("test_an_exhausted_block_raises_the_callers_error")


@pytest.mark.req("C-1")
def test_the_operation_of_a_block_is_its_function() -> None:
    def mine() -> str | None:
        for attempt in attempts():
            with attempt:
                return current().operation
        return None

    assert mine() == f"{__name__}.test_the_operation_of_a_block_is_its_function.<locals>.mine"
    for attempt in attempts(operation="crm.pull"):
        with attempt:
            assert current().operation == "crm.pull"


@pytest.mark.req("C-1")
def test_an_attempt_of_a_block_is_current(clock: FakeClock) -> None:
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
def test_leaving_the_body_early_is_a_success(how: str) -> None:
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


def test_a_return_in_an_async_block_leaves_no_open_generator() -> None:
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
def test_a_sync_loop_in_async_code_is_rejected() -> None:
    async def wrong() -> None:
        for attempt in attempts():
            with attempt:
                pass

    with pytest.raises(TypeError, match="async for"):
        asyncio.run(wrong())


@pytest.mark.req("C-11")
def test_a_sync_loop_in_an_async_generator_is_rejected() -> None:
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
def test_an_attempt_that_was_not_entered_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="with attempt:"):
        for _ in attempts():
            pass


@pytest.mark.req("C-11")
def test_an_attempt_that_was_not_entered_is_an_error_without_another_wait(clock: FakeClock) -> None:
    with pytest.raises(RuntimeError, match="with attempt:"):
        for attempt in retry(STEADY, on=ValueError).attempts():
            if attempt.number == 1:
                with attempt:
                    raise ValueError
    assert clock.slept == [1]


@pytest.mark.req("C-11")
def test_an_async_attempt_that_was_not_entered_is_an_error() -> None:
    async def wrong() -> None:
        async for _ in attempts():
            pass

    with pytest.raises(RuntimeError, match="with attempt:"):
        asyncio.run(wrong())


@pytest.mark.req("C-11")
def test_attempts_can_be_iterated_once() -> None:
    once = attempts()
    for attempt in once:
        with attempt:
            pass
    with pytest.raises(RuntimeError, match=r"call attempts\(\) again"):
        iter(once)


@pytest.mark.req("C-11")
def test_an_attempt_can_be_entered_once() -> None:
    for attempt in attempts():
        with attempt:
            pass
        with pytest.raises(RuntimeError, match="entered only once"), attempt:
            pass


@pytest.mark.req("C-11")
def test_only_the_attempts_of_a_block_can_be_entered() -> None:
    with pytest.raises(RuntimeError, match="can be entered"), current():
        pass


@pytest.mark.req("C-11")
def test_options_that_a_block_does_not_support_are_rejected() -> None:
    with pytest.raises(TypeError, match=r"attempt\.reject\(\)"):
        attempts(reject=bool)
    with pytest.raises(TypeError, match="pass a Key"):
        attempts(key="a:{b}:c:d:v1")
