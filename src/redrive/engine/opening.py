"""Generators: only their opening is tried again. Items that were handed out cannot be taken back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from functools import wraps
from typing import Any

from .loop import coroutine, plain
from .settings import Settings


def generator(settings: Settings, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper of a generator function."""
    _check(settings)

    @wraps(fn)
    def opened(*args: Any, **kwargs: Any) -> tuple[bool, Any, Any]:
        items = fn(*args, **kwargs)
        try:
            return True, next(items), items
        except StopIteration as empty:
            return False, empty.value, items

    open_ = plain(settings, opened)

    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        more, item, items = open_(*args, **kwargs)
        try:
            while more:
                try:
                    sent = yield item
                except GeneratorExit:
                    raise
                except BaseException as error:
                    item = items.throw(error)
                else:
                    item = items.send(sent)
        except StopIteration as end:
            return end.value
        finally:
            items.close()
        return item

    return wrapper


def async_generator(settings: Settings, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper of an async generator function."""
    _check(settings)

    @wraps(fn)
    async def opened(*args: Any, **kwargs: Any) -> tuple[bool, Any, Any]:
        items = fn(*args, **kwargs)
        try:
            return True, await anext(items), items
        except StopAsyncIteration:
            return False, None, items

    open_ = coroutine(settings, opened)

    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        more, item, items = await open_(*args, **kwargs)
        try:
            while more:
                try:
                    sent = yield item
                except GeneratorExit:
                    raise
                except BaseException as error:
                    item = await items.athrow(error)
                else:
                    item = await items.asend(sent)
        except StopAsyncIteration:
            return
        finally:
            await items.aclose()

    return wrapper


def _check(settings: Settings) -> None:
    if settings.reject is not None:
        raise TypeError(f"{settings.operation} is a generator, which has no result for reject=; raise an error in it")
    if settings.hedge is not None:
        raise TypeError(f"{settings.operation} is a generator, which cannot run twice at once; hedge= is for async functions")
    if settings.spill is not None:
        raise TypeError(f"{settings.operation} is a generator, whose items a job could not return; spill= is for functions")
