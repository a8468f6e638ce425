"""What the tests of the engine share: a clock that stands in for time, and every way through the loops."""

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
    """Both ways through the loops: the short one, and the one that every call takes while a stage stands."""
    if request.param == "real":
        yield None
        return
    with instant() as clock:
        yield clock


@pytest.fixture(params=WAYS)
def layer(request: pytest.FixtureRequest) -> Retry:
    return retry(max_attempts=3, backoff_base=0, jitter=0, on=OSError, **WAYS[request.param])


@pytest.fixture(params=["plain", "async"])
def made(request: pytest.FixtureRequest) -> Callable[[Retry, Work], Work]:
    """From a layer and a piece of work to the call, in one colour."""

    def plain(layer: Retry, work: Work) -> Work:
        return layer(work)

    def later(layer: Retry, work: Work) -> Work:
        @layer
        async def coroutine() -> Any:
            return work()

        return lambda: asyncio.run(coroutine())

    return plain if request.param == "plain" else later
