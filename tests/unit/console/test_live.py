"""Live: one look for all who listen, none for nobody, and fewer when nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from redrive.console import live as module
from redrive.console.live import Live


class Ledger:
    """What is looked at."""

    def __init__(self) -> None:
        self.now = "a"
        self.looks = 0

    def look(self) -> str:
        self.looks += 1
        if self.now == "broken":
            raise OSError("away")
        return self.now


async def told(stream: AsyncIterator[str]) -> str:
    while True:
        line = await anext(stream)
        if line.startswith("event"):
            return line


async def looked(live: Live, more: int = 2) -> None:
    """Until it has looked so often again: what was changed before is known then."""
    enough = live.looks + more
    while live.looks < enough:  # noqa: ASYNC110  # nobody is told of a look
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOONEST", 0.001)
    monkeypatch.setattr(module, "LATEST", 0.002)


def test_all_who_listen_are_told_by_one_poller() -> None:
    ledger = Ledger()

    async def listen() -> None:
        live = Live(ledger.look)
        streams = [live.stream() for _ in range(5)]
        for each in streams:
            assert await anext(each) == "retry: 3000\n\n"
        assert len([task for task in asyncio.all_tasks() if "_looking" in repr(task)]) == 1
        first = ["event: change\ndata: a\n\n"] * 5
        assert [await told(each) for each in streams] == first, "what changed since their pages were made is not missed"
        ledger.now = "b"
        assert [await told(each) for each in streams] == ["event: change\ndata: b\n\n"] * 5
        ledger.now = "broken"
        assert await told(streams[0]) == "event: change\ndata: away\n\n"
        for each in streams:
            await each.aclose()
        await asyncio.sleep(0)
        assert not [task for task in asyncio.all_tasks() if "_looking" in repr(task)], "nobody listens: nobody looks"

    asyncio.run(listen())


def test_who_is_slow_hears_the_last_word_only() -> None:
    ledger = Ledger()

    async def listen() -> None:
        live = Live(ledger.look)
        stream = live.stream()
        await anext(stream)
        for name in "bcd":
            await looked(live)
            ledger.now = name
        await looked(live)
        assert await told(stream) == "event: change\ndata: d\n\n"
        await stream.aclose()

    asyncio.run(listen())


def test_there_is_an_end_to_how_many_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)

    async def listen() -> None:
        live = Live(Ledger().look)
        streams = [live.stream() for _ in range(2)]
        for each in streams:
            assert not live.full
            await anext(each)
        assert live.full
        await streams[0].aclose()
        assert not live.full
        await streams[1].aclose()

    asyncio.run(listen())
