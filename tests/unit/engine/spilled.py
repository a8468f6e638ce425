"""A spill that records its calls, and functions that fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive import retry
from redrive.engine.spill import Spilled


class Kept:
    """Accepts calls as jobs 1, 2, …"""

    def __init__(self) -> None:
        self.spilled: list[Spilled] = []
        self.threads: list[threading.Thread] = []

    def __call__(self, spilled: Spilled) -> int:
        self.spilled.append(spilled)
        self.threads.append(threading.current_thread())
        return len(self.spilled)


def failing(error: BaseException) -> Callable[..., Any]:
    def work(*_args: Any, **_kwargs: Any) -> None:
        raise error

    return work


def afailing(error: BaseException) -> Callable[..., Any]:
    async def work(*_args: Any, **_kwargs: Any) -> None:
        raise error

    return work


def both(error: BaseException, **options: Any) -> Iterator[tuple[str, Exception]]:
    """Yield the error of a sync call and of an async one."""
    layer = retry(operation="crm", **options)
    with pytest.raises(type(error)) as plain:
        layer(failing(error))(1, user="ann")
    yield "plain", plain.value  # type: ignore[misc]
    other = type(error)(*error.args)
    with pytest.raises(type(error)) as coloured:
        asyncio.run(layer(afailing(other))(1, user="ann"))
    yield "async", coloured.value  # type: ignore[misc]
