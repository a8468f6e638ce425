"""inject(): faults of the next attempts, in this context only."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from redrive import RetryPolicy, call, outcome, retry
from redrive.core.context import SLOW_PATH_USERS, Simulation
from redrive.testing import FakeClock, inject, instant

STEADY = RetryPolicy(max_attempts=3, backoff_base=1, jitter=0)


@pytest.fixture(autouse=True)
def clock() -> Iterator[FakeClock]:
    with instant() as clock:
        yield clock


@retry(STEADY, operation="crm.fetch")
def fetch(value: int = 1) -> int:
    return value


@retry(STEADY, operation="crm.later")
async def later(value: int = 1) -> int:
    return value


class Service:
    @retry
    def method(self) -> str:
        return "done"


def test_the_next_attempts_fail_then_work(clock: FakeClock) -> None:
    with inject(fetch, ConnectionError("reset"), TimeoutError) as injected:
        assert (injected.calls, injected.left) == (0, 2)
        assert fetch(5) == 5
        assert (injected.calls, injected.left) == (3, 0)
        assert fetch(6) == 6
        assert injected.calls == 4
    assert clock.slept == [1, 2]
    assert fetch() == 1
    assert injected.calls == 4


def test_async_functions() -> None:
    with inject(later, ConnectionError, None, ConnectionError) as injected:
        assert asyncio.run(later(5)) == 5
        assert injected.left == 1
        assert asyncio.run(later(6)) == 6
    assert injected.calls == 4


def test_a_call_that_gives_up_raises_the_injected_error() -> None:
    mine = ConnectionError("mine")
    with inject(fetch, mine, mine, mine), pytest.raises(ConnectionError) as caught:
        fetch()
    assert caught.value is mine
    ended = outcome(mine)
    assert ended is not None
    assert (ended.attempts, ended.layer) == (3, "crm.fetch")


def test_none_lets_an_attempt_through() -> None:
    with inject(fetch, None, ConnectionError) as injected:
        fetch()
        assert injected.calls == 1
        fetch()
    assert injected.calls == 3


@pytest.mark.parametrize("fault", [KeyboardInterrupt, asyncio.CancelledError()])
def test_base_exceptions_can_be_injected(fault: Any) -> None:
    with inject(fetch, fault) as injected, pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
        fetch()
    assert injected.calls == 1


def test_targets() -> None:
    crm = retry(STEADY, operation="crm")
    with inject("crm", ConnectionError) as by_name:
        assert crm.call(lambda: 1) == 1
    assert by_name.calls == 2
    with inject(crm, ConnectionError) as by_retry:
        assert crm(lambda: 1)() == 1
        assert fetch() == 1
    assert by_retry.calls == 2
    with inject(Service.method, ConnectionError) as by_function:
        assert Service().method() == "done"
    assert by_function.calls == 2
    with inject(Service().method, ConnectionError) as by_method:
        assert Service().method() == "done"
    assert by_method.calls == 2


def test_other_calls_do_not_fail() -> None:
    with inject(fetch) as injected:
        assert asyncio.run(later()) == 1
        assert call(int, "7") == 7
    assert injected.calls == 0
    with inject("nobody", None) as nobody:
        assert fetch() == 1
    assert nobody.left == 1


def test_nested_faults() -> None:
    with inject(fetch, ConnectionError("outer")) as outer, inject(later, ConnectionError) as other:
        with inject(fetch, ConnectionError("inner")) as inner:
            assert fetch() == 1
        assert (inner.calls, outer.calls) == (3, 2)
        assert asyncio.run(later()) == 1
    assert other.calls == 2


def test_callables_of_every_kind() -> None:
    class Later:
        async def __call__(self) -> int:
            return 1

    async def base(value: int) -> int:
        return value

    for fn in (Later(), functools.partial(base, 1)):
        wrapped = retry(STEADY)(fn)
        with inject(wrapped, ConnectionError) as injected:
            assert asyncio.run(wrapped()) == 1
        assert injected.calls == 2


def test_faults_apply_to_this_context_only() -> None:
    results: list[int] = []
    with inject(fetch, ConnectionError, ConnectionError) as injected:
        thread = threading.Thread(target=lambda: results.append(fetch(5)))
        thread.start()
        thread.join()
        assert injected.calls == 0
        thread = threading.Thread(target=contextvars.copy_context().run, args=(lambda: results.append(fetch(6)),))
        thread.start()
        thread.join()
    assert results == [5, 6]
    assert injected.calls == 3


def test_two_tasks_may_have_different_faults() -> None:
    async def work(faults: int) -> int:
        with inject(later, *[ConnectionError] * faults) as injected:
            await later()
            await asyncio.sleep(0)
            await later()
            return injected.calls

    async def main() -> list[int]:
        return list(await asyncio.gather(work(0), work(1), work(2)))

    assert asyncio.run(main()) == [2, 3, 4]


def test_faults_use_the_surrounding_clock() -> None:
    from redrive.core.clock import SYSTEM
    from redrive.core.context import SIMULATION

    def alone() -> object:
        with inject(fetch):
            stage = SIMULATION.get()
            return None if stage is None else stage.clock

    assert contextvars.Context().run(alone) is SYSTEM


@pytest.mark.parametrize("wrong", ["ConnectionError", 5, int, ConnectionError])
def test_invalid_faults_are_rejected(wrong: Any) -> None:
    if wrong is not ConnectionError:
        with pytest.raises(TypeError, match="a fault is an exception, its type, or None"), inject(fetch, wrong):
            pass
    with pytest.raises(TypeError, match="inject needs a function decorated with @retry, .*; builtins.len is none"), inject(len):
        pass
    assert len([one for one in SLOW_PATH_USERS if isinstance(one, Simulation)]) == 1
