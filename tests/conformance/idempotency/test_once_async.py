"""`once` around coroutines: cancelled or closed ones leave no key."""

from __future__ import annotations

import asyncio

import pytest

from redrive import App, Key, current
from tests.conformance.idempotency.order import Order


@pytest.mark.req("I-4")
def test_an_async_function_runs_once(app: App) -> None:
    ran = []

    @app.once("billing:{user}:{n}:charge:v1", wait=20)
    async def charge(user: str, n: int) -> Order:
        ran.append((n, current().key))
        await asyncio.sleep(0.05)
        return Order(user, str(n))

    async def main() -> None:
        answers = await asyncio.gather(*(charge("ann", 1) for _ in range(5)), charge("ann", 2))
        assert answers == [Order("ann", "1")] * 5 + [Order("ann", "2")]
        assert current().key is None

    asyncio.run(main())
    assert sorted(ran, key=str) == [(1, Key("billing", "ann", "1", "charge")), (2, Key("billing", "ann", "2", "charge"))]


def test_a_cancelled_holder_frees_its_key(app: App) -> None:
    async def main() -> None:
        entered = asyncio.Event()

        @app.once("billing:ann:{n}:charge:v1")
        async def charge(n: int) -> int:
            entered.set()
            await asyncio.sleep(30)
            return n

        task = asyncio.create_task(charge(1))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert app.keys().page() == []


def test_a_closed_coroutine_frees_its_key(app: App) -> None:
    @app.once("billing:ann:{n}:charge:v1")
    async def charge(n: int) -> int:
        await asyncio.Event().wait()
        return n

    async def main() -> None:
        call = charge(1)
        step = asyncio.get_running_loop().create_future()
        begins = call.send(None)
        begins.add_done_callback(lambda _: step.set_result(None))
        await step
        call.send(None)  # it has begun and waits in the function
        call.close()

    asyncio.run(main())
    app.keys().executor.shutdown()
    assert app.keys().page() == []


def test_a_caller_cancelled_during_begin_leaves_no_key(app: App) -> None:
    ran = []

    @app.once("billing:ann:{n}:charge:v1")
    async def charge(n: int) -> int:
        ran.append(n)
        return n

    async def main() -> None:
        for number in range(30):
            task = asyncio.create_task(charge(number))
            for _ in range(number % 4):
                await asyncio.sleep(0)
            await asyncio.sleep(number * 0.0001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    app.keys().executor.submit(lambda: None).result()
    app.keys().close()  # all threads have ended
    left = app.keys().page(status="processing")
    assert left == []
