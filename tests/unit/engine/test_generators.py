"""Generators: only their opening is retried. From the first item on they are the original generator."""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import Any

import pytest

from redrive import RetryPolicy, current, outcome, retry
from redrive.testing import FakeClock, inject

pytestmark = pytest.mark.req("C-11")
STEADY = RetryPolicy(max_attempts=3, backoff_base=1, jitter=0)
LAYER = retry(STEADY, on=OSError)


class Source:
    """A generator that fails to open this number of times, or at an item, and records its calls."""

    def __init__(self, failures: int = 0, breaks_at: int | None = None) -> None:
        self.opened = 0
        self.got: list[object] = []
        self._failures = failures
        self._breaks_at = breaks_at

    def __call__(self, count: int = 3) -> Generator[int, object, str]:
        self.opened += 1
        if self.opened <= self._failures:
            raise OSError("closed")
        try:
            for item in range(count):
                if item == self._breaks_at:
                    raise OSError("broken")
                try:
                    self.got.append((yield item))
                except KeyError as error:
                    self.got.append(error)
        finally:
            self.got.append("left")
        return "all"

    async def later(self, count: int = 3) -> AsyncGenerator[int, object]:
        self.opened += 1
        if self.opened <= self._failures:
            raise OSError("closed")
        try:
            for item in range(count):
                if item == self._breaks_at:
                    raise OSError("broken")
                try:
                    self.got.append((yield item))
                except KeyError as error:
                    self.got.append(error)
        finally:
            await asyncio.sleep(0)
            self.got.append("left")


def plain(source: Source) -> Any:
    return LAYER(source)


def later(source: Source) -> Any:
    return LAYER(source.later)


def test_the_opening_of_a_generator_is_retried(clock: FakeClock) -> None:
    source = Source(failures=2)
    assert list(plain(source)()) == [0, 1, 2]
    assert (source.opened, clock.slept) == (3, [1, 2])


def test_nothing_runs_before_the_first_item_is_requested() -> None:
    source = Source()
    plain(source)()
    assert source.opened == 0


def test_an_item_is_never_repeated(clock: FakeClock) -> None:
    source = Source(breaks_at=2)
    items = plain(source)()
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(OSError, match="broken") as caught:
        next(items)
    assert source.opened == 1
    assert outcome(caught.value) is None
    assert clock.slept == []


def test_an_exhausted_opening_raises_the_error(clock: FakeClock) -> None:
    source = Source(failures=9)
    with pytest.raises(OSError, match="closed") as caught:
        next(plain(source)())
    ended = outcome(caught.value)
    assert source.opened == 3
    assert ended is not None
    assert ended.reason == "attempts"
    ours = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if "redrive/engine" in frame.filename]
    assert len(ours) <= 4


def test_send_and_return_values_are_passed_through() -> None:
    source = Source()
    items = plain(source)()
    assert next(items) == 0
    assert items.send("a") == 1
    assert items.send("b") == 2
    with pytest.raises(StopIteration) as end:
        items.send("c")
    assert end.value.value == "all"
    assert source.got == ["a", "b", "c", "left"]


def test_an_empty_generator_returns_its_value() -> None:
    items = plain(Source())(0)
    with pytest.raises(StopIteration) as end:
        next(items)
    assert end.value.value == "all"


def test_errors_can_be_thrown_into_a_generator() -> None:
    source = Source()
    items = plain(source)()
    next(items)
    error = KeyError("x")
    assert items.throw(error) == 1
    assert source.got == [error]
    with pytest.raises(ZeroDivisionError):
        items.throw(ZeroDivisionError())
    assert source.got[-1] == "left"
    with pytest.raises(StopIteration):
        next(items)


def test_a_thrown_stop_iteration_does_not_end_the_generator() -> None:
    items = plain(Source())()
    next(items)
    with pytest.raises(RuntimeError):
        items.throw(StopIteration("x"))


def test_close_closes_the_inner_generator() -> None:
    source = Source()
    items = plain(source)()
    next(items)
    items.close()
    assert source.got == ["left"]
    for item in plain(source)():
        assert item == 0
        break
    assert source.got == ["left", "left"]


def test_a_generator_that_ignores_close_is_an_error() -> None:
    @LAYER
    def stubborn() -> Generator[int, None, None]:
        try:
            yield 1
        except GeneratorExit:
            yield 2

    items = stubborn()
    next(items)
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        items.close()


def test_later_items_are_outside_the_attempt() -> None:
    @LAYER
    def items() -> Iterator[str | None]:
        yield current().operation
        yield current().operation

    first, second = items()
    assert first is not None
    assert first.endswith("items")
    assert second is None


def test_a_key_is_built_from_the_parameters() -> None:
    @retry(key="a:b:{page}:pull:v1")
    def items(page: int) -> Iterator[str]:
        yield str(current().key)

    assert list(items(7)) == ["a:b:7:pull:v1"]

    @retry(key="a:b:{page}:pull:v1")
    async def later(page: int) -> AsyncGenerator[str, None]:
        yield str(current().key)

    async def main() -> list[str]:
        return [item async for item in later(7)]

    assert asyncio.run(main()) == ["a:b:7:pull:v1"]


@pytest.mark.parametrize("make", [plain, later], ids=["plain", "async"])
def test_reject_is_not_supported_for_generators(make: Any) -> None:
    layer = LAYER.using(reject=bool)
    source = Source()
    with pytest.raises(TypeError, match="no result for reject="):
        layer(source if make is plain else source.later)


def test_faults_can_be_injected_into_openings(clock: FakeClock) -> None:
    source = Source()
    items = plain(source)
    with inject(items, OSError, OSError) as injected:
        assert list(items()) == [0, 1, 2]
    assert (injected.calls, source.opened) == (3, 1)


def test_the_opening_of_an_async_generator_is_retried(clock: FakeClock) -> None:
    source = Source(failures=2)

    async def main() -> list[int]:
        return [item async for item in later(source)()]

    assert asyncio.run(main()) == [0, 1, 2]
    assert (source.opened, clock.slept) == (3, [1, 2])


def test_an_async_item_is_never_repeated(clock: FakeClock) -> None:
    source = Source(breaks_at=1)

    async def main() -> None:
        items = later(source)()
        assert await anext(items) == 0
        with pytest.raises(OSError, match="broken"):
            await anext(items)

    asyncio.run(main())
    assert source.opened == 1


def test_an_empty_async_generator_yields_nothing() -> None:
    async def main() -> list[int]:
        return [item async for item in later(Source())(0)]

    assert asyncio.run(main()) == []


def test_async_generators_support_send_throw_and_close() -> None:
    source = Source()
    error = KeyError("x")

    async def main() -> None:
        items = later(source)()
        assert await anext(items) == 0
        assert await items.asend("a") == 1
        assert await items.athrow(error) == 2
        await items.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(items)
        other = later(source)()
        await anext(other)
        with pytest.raises(ZeroDivisionError):
            await other.athrow(ZeroDivisionError())

    asyncio.run(main())
    assert source.got == ["a", error, "left", "left"]


def test_breaking_out_of_an_async_generator_closes_the_inner_one() -> None:
    source = Source()

    async def main() -> None:
        async for _ in later(source)():
            break
        gc.collect()
        for _ in range(5):
            await asyncio.sleep(0)
        assert source.got == ["left"]

    asyncio.run(main())


@pytest.mark.req("C-4")
def test_a_generator_leaves_no_reference_cycle() -> None:
    def go() -> None:
        try:
            next(retry(RetryPolicy(max_attempts=2, backoff_base=0, jitter=0), on=OSError)(Source(failures=9))())
        except OSError:
            pass

    go()
    gc.collect()
    gc.freeze()  # objects of other tests do not count
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(20):
            go()
        assert gc.collect() == 0
        assert len(gc.get_objects()) - before < 200
    finally:
        gc.enable()
        gc.unfreeze()


@pytest.mark.req("C-6")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_base_exceptions_in_a_generator_are_not_retried(kind: type[BaseException]) -> None:
    opened = 0

    @LAYER
    def items() -> Iterator[int]:
        nonlocal opened
        opened += 1
        raise kind
        yield 1

    with pytest.raises(kind):
        next(items())
    assert opened == 1
