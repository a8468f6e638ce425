"""Warnings of commands: a direct call, and a blocking submit in an event loop."""

from __future__ import annotations

import asyncio
import warnings

import pytest

from redrive import App
from redrive.errors import BlockingCall, DirectCall
from redrive.testing import sandbox


@pytest.fixture(autouse=True)
def strict() -> None:
    warnings.simplefilter("error")  # like a program with warnings as errors, which the plugin disables for tests


def test_a_direct_call_warns_once_and_run_does_not() -> None:
    app = App("sqlite://")
    double = app.command("double")(_double)
    assert double.run(2) == 4
    with pytest.warns(DirectCall, match=r"double was called directly.*`\.submit\(\.\.\.\)`.*`\.run\(\.\.\.\)`") as told:
        assert double(2) == 4
    assert told[0].filename == __file__
    assert double(3) == double.using(priority=1)(3) == 6


def _double(n: int) -> int:
    return n * 2


def test_an_async_command_can_be_called() -> None:
    app = App("sqlite://")

    @app.command("triple")
    async def triple(n: int) -> int:
        return n * 3

    assert asyncio.run(triple.run(2)) == 6
    with pytest.warns(DirectCall):
        assert asyncio.run(triple(2)) == 6


def test_a_call_inside_a_job_does_not_warn() -> None:
    app = App("sqlite://")
    double = app.command("double")(_double)

    @app.command("outer")
    def outer(n: int) -> int:
        return double(n)

    with sandbox(app) as box:
        job = outer.submit(4)
        box.drain()
        assert job.result() == 8


def test_a_blocking_submit_in_an_event_loop_warns_once() -> None:
    with App("sqlite://") as app:
        double = app.command("double")(_double)

        async def handler() -> None:
            double.submit(1)

        double.submit(0)
        with pytest.warns(BlockingCall, match=r"blocks the event loop; use `await _double\.asubmit\(\.\.\.\)`") as told:
            asyncio.run(handler())
        assert told[0].filename == __file__
        asyncio.run(handler())


def test_a_bare_once_is_rejected() -> None:
    app = App("sqlite://")
    with pytest.raises(TypeError, match=r'once needs a key: @app\.once\("billing'):

        @app.once  # type: ignore[arg-type]
        def charge(order: int) -> int:
            return order

    def key_of(order: int) -> str:
        return f"billing:ann:{order}:charge:v1"

    @app.once(key_of)
    def pay(order: int) -> int:
        return order

    @app.once(lambda order: f"billing:ann:{order}:refund:v1")
    def refund(order: int) -> int:
        return order

    assert (pay(1), refund(1)) == (1, 1)
    app.close()
