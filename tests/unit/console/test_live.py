"""Live updates: one poller for all open pages, and none without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest

from redrive.console import application as module
from redrive.console.application import LiveResponse, LiveUpdates


class FakeLedger:
    """A ledger whose version the test changes."""

    def __init__(self) -> None:
        self.version = "a"

    def read_version(self) -> str:
        if self.version == "broken":
            raise OSError("away")
        return self.version


async def next_change(stream: AsyncIterator[str]) -> str:
    while True:
        line = await anext(stream)
        if line.startswith("event"):
            return line


async def wait_for_polls(live: LiveUpdates, count: int = 2) -> None:
    """Wait until later polls have seen every earlier change."""
    end = live.polls + count
    while live.polls < end:  # noqa: ASYNC110  # a poll triggers no event
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_POLL_SECONDS", 0.001)
    monkeypatch.setattr(module, "MAX_POLL_SECONDS", 0.002)


def test_one_poller_notifies_all_listeners() -> None:
    ledger = FakeLedger()

    async def listen() -> None:
        live = LiveUpdates(ledger.read_version)
        streams = [live.stream() for _ in range(5)]
        for each in streams:
            assert await anext(each) == "retry: 3000\n\n"
        assert len([task for task in asyncio.all_tasks() if "LiveUpdates._poll" in repr(task)]) == 1
        first = ["event: change\ndata: a\n\n"] * 5
        assert [await next_change(each) for each in streams] == first, "a change before the first poll is not missed"
        ledger.version = "b"
        assert [await next_change(each) for each in streams] == ["event: change\ndata: b\n\n"] * 5
        ledger.version = "broken"
        assert await next_change(streams[0]) == "event: change\ndata: away\n\n"
        for each in streams:
            await each.aclose()
        await asyncio.sleep(0)
        assert not [task for task in asyncio.all_tasks() if "LiveUpdates._poll" in repr(task)], (
            "without a listener there is no poller"
        )

    asyncio.run(listen())


def test_a_slow_listener_only_gets_the_newest_version() -> None:
    ledger = FakeLedger()

    async def listen() -> None:
        live = LiveUpdates(ledger.read_version)
        stream = live.stream()
        await anext(stream)
        for name in "bcd":
            await wait_for_polls(live)
            ledger.version = name
        await wait_for_polls(live)
        assert await next_change(stream) == "event: change\ndata: d\n\n"
        await stream.aclose()

    asyncio.run(listen())


def test_the_number_of_listeners_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LISTENERS", 2)

    async def listen() -> None:
        live = LiveUpdates(FakeLedger().read_version)
        streams = [live.stream() for _ in range(2)]
        for each in streams:
            assert not live.is_full
            await anext(each)
        assert live.is_full
        await streams[0].aclose()
        assert not live.is_full
        await streams[1].aclose()

    asyncio.run(listen())


def test_a_cancelled_connection_frees_its_place_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LISTENERS", 1)

    async def listen() -> None:
        live = LiveUpdates(FakeLedger().read_version)
        is_sending = asyncio.Event()

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.body":
                is_sending.set()
                await asyncio.Event().wait()  # the browser reads nothing

        connection = asyncio.create_task(LiveResponse(live.stream()).stream_response(send))
        await is_sending.wait()
        assert live.is_full
        connection.cancel()
        (error,) = await asyncio.gather(connection, return_exceptions=True)
        assert isinstance(error, asyncio.CancelledError)  # its traceback keeps the stream alive
        assert not live.is_full

    asyncio.run(listen())


def test_a_stream_ends_so_that_the_browser_signs_in_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STREAM_SECONDS", 0.01)

    async def main() -> None:
        live = LiveUpdates(FakeLedger().read_version)
        events = [event async for event in live.stream()]
        assert (events[0], events[-1]) == ("retry: 3000\n\n", "retry: 100\n\n")
        assert not live._listeners
        assert live._task is None

    asyncio.run(main())
