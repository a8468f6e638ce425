"""Mistakes of a new user: each of these was silent, or had a misleading message."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from redrive import RetryPolicy, acall, attempts, backoff, journal, outcome, retry
from redrive.testing import FaultServer, inject, instant

QUICK = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)


class OrderFailed(Exception):
    pass


def test_an_error_raised_from_a_spent_one_has_an_outcome() -> None:
    @retry(QUICK)
    def low() -> None:
        raise ConnectionResetError

    @retry(QUICK, on=Exception)
    def high() -> None:
        try:
            low()
        except OSError as error:
            raise OrderFailed from error

    with pytest.raises(OrderFailed) as caught:
        high()
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "nested"
    assert not ended.spent


def test_a_context_manager_function_is_rejected() -> None:
    @contextlib.contextmanager
    def plain() -> Iterator[None]:
        yield

    @contextlib.asynccontextmanager
    async def later() -> AsyncIterator[None]:
        yield

    for fn in (plain, later):
        with pytest.raises(TypeError, match="write @contextmanager above @retry"):
            retry(fn)


def test_a_context_manager_above_a_retry_is_accepted() -> None:
    opened = 0

    @contextlib.contextmanager
    @retry(QUICK)
    def connection() -> Iterator[int]:
        nonlocal opened
        opened += 1
        if opened < 3:
            raise ConnectionRefusedError
        yield opened

    with connection() as number:
        assert number == 3


def test_an_async_reject_is_rejected() -> None:
    async def reject(result: object) -> bool:
        return True

    with pytest.raises(TypeError, match="must be a sync function of the result"):
        retry(reject=reject)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("given", [backoff.fixed, lambda attempt: 1.0, lambda: 1.0], ids=["not called", "one", "none"])
def test_a_backoff_with_other_arguments_is_rejected(given: object) -> None:
    with pytest.raises(TypeError, match="function of \\(attempt, draw\\)"):
        retry(backoff=given)  # type: ignore[call-overload]  # the mistake under test


def test_acall_of_a_sync_function_names_the_fix() -> None:
    def plain() -> int:
        return 1

    async def main() -> None:
        await acall(plain)  # type: ignore[arg-type]  # the mistake under test

    with pytest.raises(TypeError, match="plain is sync; use call"):
        asyncio.run(main())


def test_an_attempt_may_be_entered_by_async_with() -> None:
    async def main() -> int:
        tried = 0
        async for attempt in attempts(QUICK):
            async with attempt:
                tried += 1
                if tried < 3:
                    raise ConnectionResetError
        return tried

    assert asyncio.run(main()) == 3


def test_an_error_object_raised_repeatedly_does_not_grow() -> None:
    kept = ConnectionResetError()

    @retry(QUICK)
    def fail() -> None:
        raise kept

    for _ in range(200):
        with pytest.raises(ConnectionResetError):
            fail()
    assert len(kept.__notes__) <= 50


def test_unused_injected_faults_are_reported() -> None:
    said = "2 of 2 injected failures not used: no.such.operation made 0 attempts"
    with pytest.raises(AssertionError, match=said), inject("no.such.operation", ConnectionError, TimeoutError):
        pass


def test_unused_faults_do_not_hide_an_error_in_the_block() -> None:
    with pytest.raises(ZeroDivisionError), inject("no.such.operation", ConnectionError):
        raise ZeroDivisionError


@pytest.mark.parametrize("step", ["rest", 9999, -1, True])
def test_an_invalid_step_of_a_fault_server_is_rejected(step: object) -> None:
    with pytest.raises(ValueError, match="a step is a status from 100 to 599, an Answer, or one of reset"):
        FaultServer(step)  # type: ignore[arg-type]  # the mistake under test


def test_a_broken_sink_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def broken(record: object) -> None:
        raise KeyError("nosuch")

    @retry(QUICK)
    def fail() -> None:
        raise ConnectionResetError

    before = journal.dropped()
    unsubscribe = journal.subscribe(broken, inline=True)
    try:
        with caplog.at_level(logging.WARNING, "redrive"), instant(), pytest.raises(ConnectionResetError):
            fail()
    finally:
        unsubscribe()
    assert journal.dropped() == before + 3
    assert len([record for record in caplog.records if "a journal sink raised" in record.message]) == 1


@pytest.mark.parametrize("policy", [RetryPolicy(3, 1e300, 1e300, 0), RetryPolicy(3, 1, 1, 1e300)], ids=["base", "jitter"])
def test_waits_passed_to_the_clock_are_finite(policy: RetryPolicy) -> None:
    @retry(policy, on=KeyError, attempt_timeout=None)
    def fail() -> None:
        raise KeyError("mine")

    for _ in range(2):  # the second time the type of error is cached
        with instant(jitter=1) as clock, pytest.raises(KeyError):
            fail()
        assert all(wait <= 1e9 for wait in clock.slept)
