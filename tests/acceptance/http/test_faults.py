"""Faults without lasting effects: a server that dies and returns, callers that are cancelled at any time."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
import time
from typing import Any

import httpx
import httpx2
import pytest

from redrive import Budget, RetryPolicy, http, retry
from redrive.testing import Answer, FaultServer

STUBBORN = retry(RetryPolicy(max_attempts=200, backoff_base=0.01, backoff_max=0.05, jitter=0.01), attempt_timeout=5)
ROUNDS = 400


def quiet(server: FaultServer) -> int:
    """Return the number of open connections, once the server has noticed closed ones."""
    end = time.monotonic() + 60
    while server.open and time.monotonic() < end:
        time.sleep(0.01)
    return server.open


@pytest.mark.req("H-3", "C-10")
def test_calls_survive_a_server_restart() -> None:
    wrong: list[Exception] = []
    with FaultServer(Answer(body=b"ok", delay=0.002)) as server, http.Client(server.url, retry=STUBBORN) as api:

        def work(number: int) -> None:
            try:
                for n in range(40):
                    assert api.request("PUT", f"/{number}/{n}", json={"n": n}).text == "ok"
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            time.sleep(0.05)
            with server.down():
                time.sleep(0.05)
        for thread in threads:
            thread.join()
        assert not wrong
        paths = {seen.path for seen in server.requests}
        assert len(paths) == 8 * 40
        api.close()
        assert quiet(server) == 0


@pytest.mark.req("H-3", "C-10")
def test_async_calls_survive_a_server_restart() -> None:
    async def main(server: FaultServer) -> None:
        async with http.AsyncClient(server.url, retry=STUBBORN) as api:

            async def work(number: int) -> None:
                for n in range(40):
                    assert (await api.request("PUT", f"/{number}/{n}", json={"n": n})).text == "ok"

            async def kill() -> None:
                for _ in range(3):
                    await asyncio.sleep(0.05)
                    down = server.down()
                    await asyncio.to_thread(down.__enter__)
                    await asyncio.sleep(0.05)
                    await asyncio.to_thread(down.__exit__, None, None, None)

            await asyncio.gather(kill(), *(work(number) for number in range(8)))

    with FaultServer(Answer(body=b"ok", delay=0.002)) as server:
        asyncio.run(main(server))
        assert len({seen.path for seen in server.requests}) == 8 * 40
        assert quiet(server) == 0


class Tally:
    """Outcomes of the calls of one storm, and errors that the event loop reported."""

    def __init__(self) -> None:
        self.done = self.cancelled = self.failed = 0
        self.complaints: list[Any] = []

    async def watch(self, task: asyncio.Task[Any]) -> None:
        try:
            await task
            self.done += 1
        except asyncio.CancelledError:
            self.cancelled += 1
        except (httpx2.HTTPError, httpx.HTTPError):
            self.failed += 1


async def storm(send: Any, seed: int, tally: Tally) -> None:
    """Make many calls and cancel each at a random time, some after their end."""
    loop, dice = asyncio.get_running_loop(), random.Random(seed)
    loop.set_exception_handler(lambda _, context: tally.complaints.append(context))
    gc.collect()  # finalizers of other tests may start tasks
    before = asyncio.all_tasks()
    for _ in range(ROUNDS // 20):
        tasks = [asyncio.create_task(send(n)) for n in range(20)]
        for task in tasks:
            if dice.random() < 0.8:
                loop.call_later(dice.expovariate(1 / 0.04), task.cancel)
        await asyncio.gather(*(tally.watch(task) for task in tasks))
    gc.collect()
    await asyncio.sleep(0)
    others = asyncio.all_tasks() - before
    assert not others, others


DRIP = Answer(body=b"x" * 30, trouble="drip", pace=0.001)
SCRIPT: list[Any] = [200, 503, "reset", DRIP, 200, Answer(delay=0.02), "close", "half"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["client", "httpx", "httpx2"])
def test_cancelled_callers_leave_nothing_behind(seed: int, kind: str) -> None:
    tally = Tally()
    quick = retry(RetryPolicy(max_attempts=3, backoff_base=0.002, jitter=0.002), attempt_timeout=0.5, budget=Budget.unlimited())

    async def main(server: FaultServer) -> None:
        if kind == "client":
            async with http.AsyncClient(server.url, retry=quick) as api:
                await storm(lambda n: api.post(f"/{n}", json={}, idempotency_key=True), seed, tally)
                server.script(200)
                pool: Any = api._connections.client(asyncio.get_running_loop())._transport
                assert (await api.get("/after")).status_code == 200
                assert not pool._pool._requests, "nobody waits in the pool"
            return
        library: Any = httpx if kind == "httpx" else httpx2
        transport = http.Transport(retry=quick)
        async with library.AsyncClient(transport=transport) as mine:
            await storm(lambda n: mine.put(f"{server.url}/{n}", json={}), seed, tally)
            server.script(200)
            assert (await mine.get(server.url)).status_code == 200
            if library is httpx2:  # httpx leaks pool slots when callers are cancelled, also without Redrive
                assert not transport._inner._pool._requests

    with FaultServer(*(SCRIPT * ROUNDS)) as server:
        asyncio.run(main(server))
        assert quiet(server) == 0
    assert tally.complaints == []
    assert tally.done + tally.cancelled + tally.failed == ROUNDS
    assert tally.cancelled > ROUNDS / 20
    assert tally.done > ROUNDS / 20


def test_a_failed_call_leaves_no_reference_cycle() -> None:
    """Bodies and sockets of failed calls are freed at once, without the garbage collector."""
    with FaultServer(503) as server, http.Client(server.url, retry=retry(RetryPolicy.disabled(), budget=Budget())) as api:
        for _ in range(3):
            with pytest.raises(httpx2.HTTPStatusError):
                api.get("/")
        gc.collect()
        gc.freeze()  # ignore garbage of other tests
        gc.disable()
        try:
            for _ in range(50):
                try:
                    api.get("/")
                except httpx2.HTTPStatusError:
                    pass
            alive = sum(isinstance(each, httpx2.Response) for each in gc.get_objects())
        finally:
            gc.enable()
            gc.unfreeze()
    assert alive <= 2


def test_a_forked_child_opens_its_own_connections() -> None:
    with FaultServer(Answer(body=b"ok")) as server, http.Client(server.url) as api:
        assert api.get("/parent").text == "ok"
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if api.get("/child").text == "ok" else 2)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert api.get("/parent").text == "ok"
        assert [seen.path for seen in server.requests] == ["/parent", "/child", "/parent"]
        assert server.connections == 2


def test_another_event_loop_opens_its_own_connections() -> None:
    with FaultServer(Answer(200, {"connection": "close"}, body=b"ok")) as server:
        api = http.AsyncClient(server.url)

        async def once() -> str:
            text: str = (await api.get("/")).text
            return text

        assert [asyncio.run(once()) for _ in range(3)] == ["ok"] * 3
        asyncio.run(api.aclose())
