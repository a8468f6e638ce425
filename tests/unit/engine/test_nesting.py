"""Nested layers do not multiply, and unrelated calls do not disturb each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from redrive import Outcome, Retry, RetryPolicy, current, deadline, outcome, retry
from redrive.engine.nesting import MAX_CHAINED_ERRORS, mark, spent_inside
from redrive.engine.settings import RetrySettings
from redrive.testing import instant
from tests.unit.engine.leaf import TIMED, UNTIMED, ZERO, Leaf, every_layer

pytestmark = [pytest.mark.req("C-7"), pytest.mark.usefixtures("both_ways")]


@every_layer
def test_three_layers_of_three_make_three_calls(layer: Retry) -> None:
    leaf = Leaf()
    stack: Callable[[], None] = leaf
    for _ in range(3):
        stack = layer(lambda below=stack: below())
    with pytest.raises(OSError, match="down") as caught:
        stack()
    assert leaf.calls == 3
    notes = caught.value.__notes__
    assert len(notes) == 3
    assert "gave up" in notes[0]
    assert all("an inner layer already used its retries" in note for note in notes[1:])


@every_layer
def test_three_async_layers_of_three_make_three_calls(layer: Retry) -> None:
    leaf = Leaf()

    @layer
    async def inner() -> None:
        await leaf.later()

    @layer
    async def middle() -> None:
        await inner()

    @layer
    async def outer() -> None:
        await middle()

    with pytest.raises(OSError, match="down"):
        asyncio.run(outer())
    assert leaf.calls == 3


@every_layer
def test_sync_async_and_block_layers_nest(layer: Retry) -> None:
    leaf = Leaf()

    def block() -> None:
        for attempt in layer.attempts():
            with attempt:
                leaf()

    @layer
    async def middle() -> None:
        await asyncio.to_thread(layer(block))

    with pytest.raises(OSError, match="down"):
        layer.call(lambda: asyncio.run(middle()))
    assert leaf.calls == 3


@every_layer
def test_nested_layers_do_not_multiply_through_a_raised_cause(layer: Retry) -> None:
    leaf = Leaf()

    @layer.using(on=(OSError, KeyError))
    def outer() -> None:
        try:
            layer.call(leaf)
        except OSError as error:
            raise KeyError("mine") from error

    with pytest.raises(KeyError):
        outer()
    assert leaf.calls == 3


@every_layer
@pytest.mark.parametrize("way", ["gather", "group", "task"])
def test_nested_layers_do_not_multiply_through_tasks(layer: Retry, way: str) -> None:
    leaf = Leaf()

    @layer.using(on=(OSError, ExceptionGroup))
    async def outer() -> None:
        if way == "gather":
            await asyncio.gather(layer.acall(leaf.later), asyncio.sleep(0))
        elif way == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(layer.acall(leaf.later))
        else:
            await asyncio.create_task(layer.acall(leaf.later))

    with pytest.raises((OSError, ExceptionGroup)):
        asyncio.run(outer())
    assert leaf.calls == 3


@every_layer
def test_nested_layers_do_not_multiply_through_a_thread_pool(layer: Retry) -> None:
    leaf = Leaf()

    @layer
    def outer() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(layer.using(backoff_base=0).call, leaf).result()

    with pytest.raises(OSError, match="down"):
        outer()
    assert leaf.calls == 3


@every_layer
def test_a_layer_may_allow_multiplication(layer: Retry) -> None:
    leaf = Leaf()
    with pytest.raises(OSError, match="down"):
        layer.using(nested="allow").call(layer(leaf))
    assert leaf.calls == 9


@every_layer
def test_a_disabled_layer_does_not_count_as_a_layer(layer: Retry) -> None:
    leaf = Leaf()
    off = layer.using(RetryPolicy.disabled())
    with pytest.raises(OSError, match="down") as caught:
        layer.call(off(leaf))
    assert leaf.calls == 3
    assert len(caught.value.__notes__) == 1
    leaf.calls = 0
    with pytest.raises(OSError, match="down") as caught:
        off.call(leaf)
    assert leaf.calls == 1
    assert outcome(caught.value) is None
    assert not hasattr(caught.value, "__notes__")


@every_layer
def test_an_error_not_retried_by_an_inner_layer_is_retried_by_the_outer(layer: Retry) -> None:
    leaf = Leaf(lambda: KeyError("x"))
    with pytest.raises(KeyError):
        layer.using(on=KeyError).call(layer(leaf))
    assert leaf.calls == 3


@every_layer
def test_an_error_object_shared_by_unrelated_calls_is_retried_each_time(layer: Retry) -> None:
    shared = OSError("shared")
    for _ in range(3):
        leaf = Leaf(lambda: shared)
        with pytest.raises(OSError, match="shared"):
            layer.call(leaf)
        assert leaf.calls == 3


def test_an_error_object_shared_by_unrelated_tasks_is_retried_in_each() -> None:
    """As when a connection is lost, and all its waiters get the same error."""
    shared = OSError("shared")
    counts: list[int] = []

    async def call(attempts: int, turns: int) -> None:
        calls = 0

        async def body() -> None:
            nonlocal calls
            calls += 1
            for _ in range(turns):
                await asyncio.sleep(0)
            raise shared

        with pytest.raises(OSError, match="shared"):
            await TIMED.using(max_attempts=attempts).acall(body)
        counts.append(calls - attempts)

    async def main() -> None:
        await asyncio.gather(*(call(1 + number % 5, number % 7) for number in range(70)))

    asyncio.run(main())
    assert counts == [0] * 70


def test_an_inner_layer_is_recognised_among_tasks_with_the_same_error() -> None:
    shared = OSError("shared")
    calls = 0

    async def body() -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        raise shared

    async def call() -> None:
        with pytest.raises(OSError, match="shared"):
            await TIMED.acall(TIMED.using(operation="inner").acall, body)

    async def main() -> None:
        await asyncio.gather(*(call() for _ in range(20)))

    asyncio.run(main())
    assert calls == 60


def test_a_cyclic_chain_of_causes_ends() -> None:
    first, second = OSError("1"), OSError("2")
    first.__cause__, second.__cause__ = second, first
    assert spent_inside(first, 0, RetrySettings()) is None
    leaf = Leaf(lambda: first)
    with pytest.raises(OSError, match="1"):
        TIMED.call(leaf)
    assert leaf.calls == 3


def test_a_chain_of_causes_is_followed_to_a_limit() -> None:
    spent = OSError("spent")
    mark(spent, Outcome(3, 0.0, "attempts", serial=7), None)
    chain: BaseException = spent
    for _ in range(MAX_CHAINED_ERRORS + 1):
        above = OSError("above")
        above.__cause__ = chain
        chain = above
    assert spent_inside(chain, 0, RetrySettings()) is None
    assert spent_inside(ExceptionGroup("many", [OSError("other"), spent]), 0, RetrySettings()) is outcome(spent)
    assert spent_inside(spent, 7, RetrySettings()) is None


def test_exhausted_retries_of_another_library_are_not_multiplied() -> None:
    tenacity = pytest.importorskip("tenacity")
    leaf = Leaf()
    foreign = tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_none())(leaf)
    with pytest.raises(tenacity.RetryError):
        retry(ZERO, on=(OSError, tenacity.RetryError)).call(foreign)
    assert leaf.calls == 3


@pytest.mark.req("C-8")
def test_an_inner_layer_gives_up_if_the_outer_deadline_is_too_short() -> None:
    leaf = Leaf()
    with instant() as clock, pytest.raises(OSError, match="down") as caught, deadline(3):
        retry(ZERO, on=OSError).call(retry(RetryPolicy(max_attempts=9, backoff_base=2, jitter=0), on=OSError)(leaf))
    assert (leaf.calls, clock.slept) == (2, [2])
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.reason, ended.attempts, ended.spent) == ("timeout", 2, True)


@pytest.mark.req("C-8")
def test_the_timeout_of_an_attempt_reaches_inner_layers() -> None:
    seen: list[float | None] = []

    @retry(ZERO, attempt_timeout=50)
    def inner() -> None:
        seen.append(current().remaining)

    with instant():
        retry(ZERO, attempt_timeout=4).call(inner)
        retry(RetryPolicy(timeout=3), attempt_timeout=4).call(inner)
        retry(ZERO, attempt_timeout=None).call(inner)
    assert seen == [4, 3, 50]


def test_concurrent_threads_count_their_own_attempts() -> None:
    """Each with its own errors, as in sync code."""
    counts: list[int] = []

    def work() -> None:
        for _ in range(100):
            leaf = Leaf()
            with pytest.raises(OSError, match="down"):
                TIMED.call(UNTIMED(leaf))
            counts.append(leaf.calls)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [3] * 600


def test_spent_retries_stay_spent_behind_a_layer_that_does_not_retry() -> None:
    policy = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)
    calls = 0

    @retry(policy)
    def bottom() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionResetError

    @retry(policy, nested="allow", on=ValueError)
    def middle() -> None:
        bottom()

    @retry(policy)
    def top() -> None:
        middle()

    with pytest.raises(ConnectionResetError) as caught:
        top()
    assert calls == 3
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "attempts"
