"""`deadline`: the remaining time in sync and async code, and no deadline after its block."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from redrive import RetryPolicy, correlate, current, deadline, errors, retry
from redrive.engine.attempt import MIN_TIMEOUT_SECONDS
from redrive.testing import FakeClock

ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)


@pytest.mark.req("C-2", "C-8")
def test_a_sync_attempt_reads_its_remaining_time(clock: FakeClock) -> None:
    @retry(ZERO, attempt_timeout=7)
    def call() -> float | None:
        clock.advance(2)
        return current().remaining

    assert call() == 5
    clock.advance(1)
    with deadline(4):
        assert call() == 2
    assert retry(RetryPolicy(timeout=6)).call(lambda: current().remaining) == 6
    assert retry(RetryPolicy(), attempt_timeout=None).call(lambda: current().remaining) is None


@pytest.mark.req("C-8")
def test_remaining_is_never_zero_after_the_deadline(clock: FakeClock) -> None:
    with deadline(1):
        clock.advance(5)
        assert current().remaining == MIN_TIMEOUT_SECONDS


@pytest.mark.req("C-8")
def test_a_nested_deadline_only_shrinks(clock: FakeClock) -> None:
    with deadline(5):
        with deadline(timedelta(seconds=9)):
            assert current().remaining == 5
        with deadline(2):
            assert current().remaining == 2
        assert current().remaining == 5
    assert current().remaining is None


@pytest.mark.req("C-8")
def test_a_deadline_applies_to_async_code(clock: FakeClock) -> None:
    @retry
    async def call() -> float | None:
        return current().remaining

    async def main() -> None:
        async with deadline(5):
            assert await call() == 5
            assert list(await asyncio.gather(call(), call())) == [5, 5]
            assert await asyncio.to_thread(lambda: current().remaining) == 5
            with deadline(3):
                assert await asyncio.create_task(call()) == 3
        assert current().remaining is None

    asyncio.run(main())


@pytest.mark.req("C-8", "C-11")
@pytest.mark.parametrize("nothing", [0, 0.0, timedelta(0)])
def test_an_expired_deadline_starts_no_attempt(nothing: Any) -> None:
    with deadline(nothing), pytest.raises(errors.AttemptTimeout, match="had passed"):
        retry(lambda: pytest.fail("began"))()


@pytest.mark.req("C-11")
@pytest.mark.parametrize("wrong", [True, False, "5", None, -1, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_an_invalid_deadline_is_rejected(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="deadline must"):
        deadline(wrong)


@pytest.mark.req("C-11")
def test_a_deadline_cannot_be_entered_twice_at_once() -> None:
    limit = deadline(5)
    with limit:
        with pytest.raises(RuntimeError, match="create a new one"):
            limit.__enter__()
        assert current().remaining is not None
    with limit:
        assert current().remaining is not None
    assert current().remaining is None


@pytest.mark.req("C-8")
@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
def test_a_deadline_ends_with_its_block(raised: type[BaseException]) -> None:
    with pytest.raises(raised), deadline(5):
        raise raised
    assert current().remaining is None


@pytest.mark.req("C-8")
def test_generators_closed_in_another_order_leave_no_deadline() -> None:
    def items() -> Iterator[float | None]:
        with deadline(5):
            yield current().remaining

    first, second = items(), items()
    next(first)
    next(second)
    first.close()  # type: ignore[attr-defined]
    second.close()  # type: ignore[attr-defined]
    assert current().remaining is None


@pytest.mark.req("C-8")
def test_a_dropped_async_generator_leaves_no_deadline() -> None:
    async def items() -> AsyncIterator[int]:
        with deadline(5), correlate(request_id="r"):
            yield 1
            yield 2

    async def main() -> None:
        async for _ in items():
            break
        gc.collect()
        for _ in range(5):
            await asyncio.sleep(0)  # the loop closes it in another context
        assert current().remaining is None

    asyncio.run(main())


@pytest.mark.req("C-8")
def test_a_scope_left_out_of_order_restores_the_surrounding_deadline(clock: FakeClock) -> None:
    def items() -> Iterator[float | None]:
        with deadline(5):
            yield current().remaining

    with deadline(9):
        first, second = items(), items()
        next(first)
        next(second)
        first.close()  # type: ignore[attr-defined]
        second.close()  # type: ignore[attr-defined]
        assert current().remaining == 9
    assert current().remaining is None
