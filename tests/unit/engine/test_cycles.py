"""Calls that fail leave nothing for the garbage collector: no exception holds its own frame."""

from __future__ import annotations

import asyncio

import pytest

from redrive import Retry, retry
from tests.unit.engine.garbage import agarbage, garbage
from tests.unit.engine.ways import ZERO, raiser


@pytest.mark.req("C-4")
def test_a_call_leaves_no_reference_cycle(layer: Retry) -> None:
    @layer
    def call() -> None:
        raise OSError

    @layer
    def nested() -> None:
        call()

    def go() -> None:
        for each in (call, nested):
            try:
                each()
            except OSError:
                pass

    assert garbage(go) == 0


@pytest.mark.req("C-4")
def test_a_call_in_a_task_leaves_no_reference_cycle(layer: Retry) -> None:
    @layer
    async def call() -> None:
        await asyncio.sleep(0)
        raise OSError

    @layer
    async def nested() -> None:
        await call()

    async def main() -> int:
        async def go() -> None:
            for each in (call, nested):
                try:
                    await each()
                except OSError:
                    pass

        return await agarbage(go)

    assert asyncio.run(main()) == 0


@pytest.mark.req("C-4")
def test_a_function_called_once_leaves_no_reference_cycle() -> None:
    def go() -> None:
        try:
            retry(ZERO, on=OSError).call(raiser(OSError, OSError, OSError)[0])
        except OSError:
            pass

    assert garbage(go) == 0
