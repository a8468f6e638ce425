"""Calls of azure's client, which end near the deadline around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, TypeVar

from .deadline import DeadlinePassed, bounded, time_left

T = TypeVar("T")


def call(method: Callable[..., T], /, *arguments: Any, **options: Any) -> T:
    """Make a call. After the deadline its retries send nothing more: a request may only be in flight."""
    left = time_left()
    if left is None:
        return method(*arguments, **options)
    return bounded(lambda: method(*arguments, **options, raw_request_hook=_until(monotonic() + left)))


def pages(method: Callable[..., Any], /) -> Iterator[list[Any]]:
    """The pages of a listing, each in one call."""
    left = time_left()
    found = (method() if left is None else method(raw_request_hook=_until(monotonic() + left))).by_page()
    while (page := bounded(lambda: _next(found))) is not None:
        yield page


def listed(method: Callable[..., Any], /) -> Iterator[Any]:
    """The entries of a listing."""
    for page in pages(method):
        yield from page


def _next(found: Iterator[Any]) -> list[Any] | None:
    page = next(found, None)
    return None if page is None else list(page)


def _until(end: float) -> Callable[[Any], None]:
    """Called before each attempt of a request."""

    def hook(_request: Any) -> None:
        if monotonic() >= end:
            raise DeadlinePassed

    return hook
