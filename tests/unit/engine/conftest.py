"""Fixtures of the engine tests: a fake clock, and every path through the loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive import Retry, retry
from redrive.testing import FakeClock, instant
from tests.unit.engine.ways import WAYS, Work


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with instant() as clock:
        yield clock


@pytest.fixture(params=["real", "staged"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[FakeClock | None]:
    """Both paths through the loops: the fast path, and the reference loop of calls in a simulation."""
    if request.param == "real":
        yield None
        return
    with instant() as clock:
        yield clock


@pytest.fixture(params=WAYS)
def layer(request: pytest.FixtureRequest) -> Retry:
    return retry(max_attempts=3, backoff_base=0, jitter=0, on=OSError, **WAYS[request.param])


@pytest.fixture(params=["plain", "async"])
def make_call(request: pytest.FixtureRequest) -> Callable[[Retry, Work], Work]:
    """Make a call of a layer and a function, sync or async."""

    def plain(layer: Retry, work: Work) -> Work:
        return layer(work)

    def later(layer: Retry, work: Work) -> Work:
        @layer
        async def coroutine() -> Any:
            return work()

        return lambda: asyncio.run(coroutine())

    return plain if request.param == "plain" else later
