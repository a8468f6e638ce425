"""Objects that can be decorated: methods, partials, callable objects and mocks. A function keeps its metadata."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any, overload
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest

from redrive import acall, call, current, retry
from tests.unit.engine.flaky import Flaky

pytestmark = [pytest.mark.req("C-1"), pytest.mark.usefixtures("clock")]


class Service:
    def __init__(self) -> None:
        self.flaky = Flaky()

    @retry
    def method(self, value: int) -> Any:
        """Doc."""
        return self.flaky.plain(value)

    @retry
    async def async_method(self, value: int) -> Any:
        return await self.flaky.later(value)

    @classmethod
    @retry
    def outside(cls, value: int) -> tuple[type, int, int]:
        return _third_time(cls, value)

    @retry
    @classmethod
    def inside(cls, value: int) -> tuple[type, int, int]:
        return _third_time(cls, value)

    @staticmethod
    @retry
    def static_outside(value: int) -> tuple[type, int, int]:
        return _third_time(int, value)

    @retry
    @staticmethod
    def static_inside(value: int) -> tuple[type, int, int]:
        return _third_time(int, value)

    @property
    @retry
    def fact(self) -> Any:
        return self.flaky.plain("fact")


def _third_time(kind: type, value: int) -> tuple[type, int, int]:
    if current().number < 3:
        raise ConnectionError
    return kind, value, current().number


def test_methods_can_be_decorated() -> None:
    service = Service()
    assert service.method(1) == ((1,), {})
    assert asyncio.run(Service().async_method(2)) == ((2,), {})
    assert Service().fact == (("fact",), {})
    assert Service.method(Service(), 3) == ((3,), {})


@pytest.mark.parametrize("on", [Service, Service()], ids=["class", "object"])
def test_class_and_static_methods_can_be_decorated_in_both_orders(on: Any) -> None:
    assert on.outside(1) == (Service, 1, 3)
    assert on.inside(2) == (Service, 2, 3)
    assert on.static_outside(3) == (int, 3, 3)
    assert on.static_inside(4) == (int, 4, 3)


def test_sync_and_async_partials_can_be_decorated() -> None:
    flaky, later = Flaky(), Flaky()
    plain = retry(functools.partial(functools.partial(flaky.plain, 1), b=2))
    assert plain(3) == ((1, 3), {"b": 2})
    assert flaky.calls == 3
    coroutine = retry(functools.partial(later.later, 1))
    assert asyncio.run(coroutine(3)) == ((1, 3), {})
    assert later.calls == 3
    assert retry().call(functools.partial(Flaky().plain, 1), 2) == ((1, 2), {})
    assert asyncio.run(retry().acall(functools.partial(Flaky().later, 1), 2)) == ((1, 2), {})


def test_sync_and_async_callable_objects_can_be_decorated() -> None:
    class Plain(Flaky):
        def __call__(self, value: int) -> Any:
            return self.plain(value)

    class Later(Flaky):
        async def __call__(self, value: int) -> Any:
            return await self.later(value)

    assert retry(Plain())(1) == ((1,), {})
    assert asyncio.run(retry(Later())(1)) == ((1,), {})
    named = retry(Plain())
    assert named.__redrive__.operation == f"{__name__}.test_sync_and_async_callable_objects_can_be_decorated.<locals>.Plain"  # type: ignore[attr-defined]


def test_lambdas_builtins_and_classes_can_be_called() -> None:
    assert retry(lambda value: value + 1)(1) == 2
    assert call(int, "7") == 7
    assert call([3, 1, 2].index, 1) == 1
    assert call(sorted, [2, 1]) == [1, 2]


def test_mocks_can_be_decorated() -> None:
    plain = Mock(side_effect=[ConnectionError, ConnectionError, 5])
    assert retry(plain)(1) == 5
    assert plain.call_count == 3
    later = AsyncMock(side_effect=[ConnectionError, ConnectionError, 5])
    assert asyncio.run(retry(later)(1)) == 5
    assert later.await_count == 3
    assert asyncio.run(acall(AsyncMock(side_effect=[ConnectionError, 5]))) == 5
    assert isinstance(retry(Mock(return_value=MagicMock()))(), MagicMock)


@pytest.mark.skipif(not hasattr(inspect, "markcoroutinefunction"), reason="from Python 3.12 on")
def test_a_function_marked_as_a_coroutine_function_is_awaited() -> None:
    flaky = Flaky()

    def disguised() -> Any:
        return flaky.later()

    mark: Callable[[Any], Any] = inspect.markcoroutinefunction  # type: ignore[attr-defined]
    assert asyncio.run(retry(mark(disguised))()) == ((), {})
    assert flaky.calls == 3


def test_acall_accepts_a_sync_function_that_returns_an_awaitable() -> None:
    flaky = Flaky()
    assert asyncio.run(acall(lambda: flaky.later(1))) == ((1,), {})
    assert flaky.calls == 3


def test_a_decorated_function_keeps_its_metadata() -> None:
    @overload
    def original(value: int, /) -> int: ...
    @overload
    def original(value: str, /) -> str: ...
    def original(value: Any, /) -> Any:
        """What it does."""
        return value

    original.mine = 1  # type: ignore[attr-defined]
    wrapped = retry(original)
    assert wrapped.__name__ == "original"
    assert wrapped.__qualname__ == original.__qualname__
    assert wrapped.__doc__ == "What it does."
    assert wrapped.__module__ == __name__
    assert inspect.signature(wrapped) == inspect.signature(original)
    assert wrapped.__wrapped__ is original  # type: ignore[attr-defined]
    assert wrapped.mine == 1  # type: ignore[attr-defined]

    @retry
    async def later() -> None: ...

    assert inspect.iscoroutinefunction(later)


@pytest.mark.req("C-1")
@pytest.mark.parametrize("options", [{}, {"attempt_timeout": None}, {"timeout": 5.0}])
def test_an_async_call_without_asyncio_is_rejected(options: dict[str, Any]) -> None:
    """Under trio, for example: a coroutine that another loop drives."""

    @retry(max_attempts=3, **options)
    async def refused() -> None:
        raise ConnectionRefusedError

    with pytest.raises(RuntimeError, match="retried on asyncio, and no asyncio event loop is running"):
        refused().send(None)
