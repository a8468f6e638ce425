"""The shared poller: every waiter gets its signal or an error."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from redrive import RetryPolicy
from redrive.batch import SharedPoller
from redrive.batch.shared_poller import Waiters
from redrive.errors import PollerClosed

pytestmark = pytest.mark.req("G-10")
QUICK: dict[str, Any] = {"min_interval": 0.001, "max_interval": 0.01, "retry": RetryPolicy(3, 0, 0, 0)}


class Server:
    """Returns each signal once, fails as scripted, and records the ids of each fetch."""

    def __init__(self) -> None:
        self.signals: defaultdict[str, list[str]] = defaultdict(list)
        self.failures: list[Exception] = []
        self.asked: list[list[str]] = []
        self.gate: asyncio.Event | None = None

    async def fetch(self, ids: list[str]) -> dict[str, list[str]]:
        self.asked.append(ids)
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return {id_: self.signals.pop(id_) for id_ in ids if self.signals.get(id_)}


def run(work: Callable[[Server], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await work(Server())
        assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set(), "no task is left behind"

    asyncio.run(bounded())


async def start_tasks(*works: Awaitable[Any]) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.ensure_future(work) for work in works]
    await asyncio.sleep(0)
    return tasks


async def until(met: Callable[[], bool]) -> None:
    while not met():  # noqa: ASYNC110  # the list sends no event
        await asyncio.sleep(0)


def test_all_ids_are_fetched_together() -> None:
    async def work(server: Server) -> None:
        async with SharedPoller(server.fetch, **QUICK) as poller:
            waits = await start_tasks(*(poller.wait(f"t-{number}") for number in range(100)))
            await until(lambda: bool(server.asked))
            assert sorted(server.asked[0]) == sorted(f"t-{number}" for number in range(100))
            for number in range(100):
                server.signals[f"t-{number}"].append(f"s-{number}")
            assert await asyncio.gather(*waits) == [f"s-{number}" for number in range(100)]

    run(work)


def test_many_ids_are_fetched_in_groups() -> None:
    async def work(server: Server) -> None:
        async with SharedPoller(server.fetch, max_ids=30, **QUICK) as poller:
            for number in range(100):
                server.signals[str(number)].append("s")
            await asyncio.gather(*(poller.wait(str(number)) for number in range(100)))
        assert max(len(ids) for ids in server.asked) == 30

    run(work)


def test_each_signal_is_delivered_once_and_in_order() -> None:
    async def work(server: Server) -> None:
        async with SharedPoller(server.fetch, **QUICK) as poller:
            server.signals["t"] += ["1", "2", "3"]
            first = await poller.wait("t")
            assert [first, await poller.wait("t"), await poller.wait("t")] == ["1", "2", "3"]
            assert len(server.asked) == 1, "what came along is kept for those who ask next"
            server.signals["t"] += ["4", "5"]
            assert sorted(await asyncio.gather(poller.wait("t"), poller.wait("t"))) == ["4", "5"]

    run(work)


def test_a_repeated_signal_is_delivered_once() -> None:
    async def work(server: Server) -> None:
        async def fetch(ids: list[str]) -> dict[str, list[str]]:
            server.asked.append(ids)
            return {"t": ["1", "2"] if len(server.asked) > 1 else ["1"]}

        async with SharedPoller(fetch, identity=lambda signal: signal, **QUICK) as poller:
            assert [await poller.wait("t"), await poller.wait("t")] == ["1", "2"]

    run(work)


@pytest.mark.req("C-3")
def test_a_failed_poll_is_retried() -> None:
    async def work(server: Server) -> None:
        server.failures = [ConnectionError("down") for _ in range(20)]  # more than the attempts of several polls
        server.signals["t"].append("s")
        async with SharedPoller(server.fetch, **QUICK) as poller:
            assert await poller.wait("t") == "s"
        assert len(server.asked) == 21

    run(work)


def test_a_permanent_error_goes_to_every_waiter() -> None:
    async def work(server: Server) -> None:
        server.failures = [PermissionError("no")]
        async with SharedPoller(server.fetch, **QUICK) as poller:
            found = await asyncio.gather(*(poller.wait(str(number)) for number in range(5)), return_exceptions=True)
            assert [type(error) for error in found] == [PermissionError] * 5
            assert len({id(error) for error in found}) == 5
            server.signals["t"].append("s")
            assert await poller.wait("t") == "s", "the poller goes on"

    run(work)


def test_waiters_get_the_error_when_patience_ends() -> None:
    async def work(server: Server) -> None:
        server.failures = [ConnectionError("down") for _ in range(10_000)]
        async with SharedPoller(server.fetch, patience=0.02, **QUICK) as poller:
            with pytest.raises(ConnectionError, match="down"):
                await poller.wait("t")

    run(work)


def test_a_cancelled_waiter_loses_no_signal() -> None:
    async def work(server: Server) -> None:
        server.gate = asyncio.Event()
        async with SharedPoller(server.fetch, **QUICK) as poller:
            gone, stays, other = await start_tasks(poller.wait("t"), poller.wait("t"), poller.wait("u"))
            await until(lambda: bool(server.asked))
            server.signals["t"].append("s")
            server.signals["u"].append("v")
            server.gate.set()
            gone.cancel()
            assert [await stays, await other] == ["s", "v"]
            assert gone.cancelled()

    run(work)


def test_the_signal_of_a_cancelled_waiter_goes_to_the_next() -> None:
    async def work(server: Server) -> None:
        async with SharedPoller(server.fetch, **QUICK) as poller:
            for _ in range(50):
                (first,) = await start_tasks(poller.wait("t"))
                server.signals["t"].append("s")
                await until(lambda: not server.signals["t"])  # fetched, and perhaps delivered
                first.cancel()
                found = await asyncio.gather(first, return_exceptions=True)
                if isinstance(found[0], BaseException):
                    assert await poller.wait("t", timeout=20) == "s"

    run(work)


def test_closing_ends_every_waiter() -> None:
    async def work(server: Server) -> None:
        server.gate = asyncio.Event()  # a fetch that hangs
        async with SharedPoller(server.fetch, **QUICK) as poller:
            waits = await start_tasks(*(poller.wait(str(number)) for number in range(10)))
            await until(lambda: bool(server.asked))
        found = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(error) for error in found] == [PollerClosed] * 10
        with pytest.raises(PollerClosed):
            await poller.wait("t")
        await poller.aclose()

    run(work)


def test_a_cancelled_poll_task_ends_every_waiter() -> None:
    async def work(server: Server) -> None:
        poller: SharedPoller[str, str] = SharedPoller(server.fetch, **QUICK)
        (wait,) = await start_tasks(poller.wait("t"))
        for task in asyncio.all_tasks():
            if task.get_name().startswith("redrive poll of"):
                task.cancel()
        with pytest.raises(PollerClosed):
            await wait

    run(work)


def test_signals_of_one_id_until_it_is_closed() -> None:
    async def work(server: Server) -> None:
        found: list[str] = []

        async def read() -> None:
            async for signal in poller.signals("t"):
                found.append(signal)  # noqa: PERF401  # one at a time, in order

        poller: SharedPoller[str, str] = SharedPoller(server.fetch, **QUICK)
        (reading,) = await start_tasks(read())
        server.signals["t"] += ["1", "2"]
        await until(lambda: len(found) == 2)
        server.signals["t"].append("3")
        await until(lambda: len(found) == 3)
        await poller.aclose()
        await reading
        assert found == ["1", "2", "3"]

    run(work)


def test_an_idle_poller_is_woken_by_a_signal() -> None:
    async def work(server: Server) -> None:
        slow = {"min_interval": 0.001, "max_interval": 3600.0}
        async with SharedPoller(server.fetch, **slow) as poller:  # type: ignore[arg-type]  # numbers
            poller._pace = poller._pace._replace(interval=3600.0)
            (wait,) = await start_tasks(poller.wait("t"))
            await until(lambda: len(server.asked) >= 1)
            poller._pace = poller._pace._replace(interval=3600.0)
            server.signals["t"].append("s")
            poller.wake()
            assert await wait == "s"

    run(work)


def test_limits_and_invalid_options() -> None:
    async def work(server: Server) -> None:
        async with SharedPoller(server.fetch, max_waiting=2, **QUICK) as poller:
            waits = await start_tasks(poller.wait("a"), poller.wait("b"))
            with pytest.raises(RuntimeError, match="2 waiters at once; raise max_waiting="):
                await poller.wait("c")
            async with SharedPoller(server.fetch, **QUICK) as other:
                with pytest.raises(TimeoutError):
                    await other.wait("a", timeout=0.001)
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
            assert poller.waiting == 0

        async def no_mapping(ids: list[str]) -> Any:
            return ids

        async with SharedPoller(no_mapping, **QUICK) as wrong:
            with pytest.raises(TypeError, match="returns signals by id, a mapping, not list"):
                await wrong.wait("t")

    run(work)
    with pytest.raises(TypeError, match="an async function of a list of ids"):
        SharedPoller("fetch")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_interval=0.1 is shorter than min_interval=1"):
        SharedPoller(Server().fetch, min_interval=1, max_interval=0.1)


def test_a_dropped_signal_is_new_when_the_server_sends_it_again() -> None:
    waiters: Waiters[str, str, str] = Waiters(max_kept=1, identity=lambda signal: signal)
    assert waiters.deliver("a", ["first", "second"]) == []
    assert waiters.dropped == 1
    assert waiters.add("ticket", "a") is not None
    assert waiters.add("another", "a") is None
    (delivery,) = waiters.deliver("a", ["first"])
    assert delivery.signal == "first"
