"""Generators: only their opening, up to the first item, is retried."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from functools import wraps
from typing import Any

from .fastpath import wrap_async, wrap_sync
from .settings import RetrySettings


def wrap_generator(settings: RetrySettings, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a generator function whose opening is retried."""
    _check_options(settings)

    @wraps(fn)
    def open_first(*args: Any, **kwargs: Any) -> tuple[bool, Any, Any]:
        items = fn(*args, **kwargs)
        try:
            return True, next(items), items
        except StopIteration as end:
            return False, end.value, items

    open_with_retries = wrap_sync(settings, open_first)

    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        has_item, item, items = open_with_retries(*args, **kwargs)
        try:
            while has_item:
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


def wrap_async_generator(settings: RetrySettings, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return an async generator function whose opening is retried."""
    _check_options(settings)

    @wraps(fn)
    async def open_first(*args: Any, **kwargs: Any) -> tuple[bool, Any, Any]:
        items = fn(*args, **kwargs)
        try:
            return True, await anext(items), items
        except StopAsyncIteration:
            return False, None, items

    open_with_retries = wrap_async(settings, open_first)

    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        has_item, item, items = await open_with_retries(*args, **kwargs)
        try:
            while has_item:
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


def _check_options(settings: RetrySettings) -> None:
    name = f"{settings.operation} is a generator"
    if settings.reject is not None:
        raise TypeError(f"{name}, which has no result for reject=; raise an error in it")
    if settings.hedge is not None:
        raise TypeError(f"{name}, which cannot run twice at once; hedge= is for async functions")
    if settings.spill is not None:
        raise TypeError(f"{name}, whose items a job could not return; spill= is for functions")
