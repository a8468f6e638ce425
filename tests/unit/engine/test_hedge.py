"""Hedging: a second call beside a slow one. The first success wins, the other is cancelled, and both count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redrive import Breaker, Budget, RetryPolicy, current, deadline, http, journal, outcome, retry
from redrive.errors import AttemptTimeout
from redrive.journal import Record
from tests.unit.engine.garbage import garbage

pytestmark = pytest.mark.req("C-13")
POLICY = RetryPolicy(3, 0, 0, 0)
HEDGED = retry(POLICY, hedge=0.001, idempotent=True)
Step = Callable[[], Awaitable[Any]]


async def never() -> str:
    await asyncio.Event().wait()
    return "never"


async def quick() -> str:
    return "quick"


async def down() -> str:
    raise ConnectionError("down")


async def wrong() -> str:
    raise ValueError("wrong")


class Service:
    """Runs one step for each call, repeats the last one, and records the outcomes."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps
        self.numbers: list[int] = []
        self.ends: list[str] = []

    async def call(self) -> Any:
        step = self.steps[min(len(self.numbers), len(self.steps) - 1)]
        self.numbers.append(current().number)
        try:
            result = await step()
        except BaseException as error:
            self.ends.append(type(error).__name__)
            raise
        self.ends.append("done")
        return result


def run(service: Service, layer: Any = HEDGED) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(30):
            try:
                return await layer.acall(service.call)
            finally:
                await asyncio.sleep(0)
                others = asyncio.all_tasks() - {asyncio.current_task()}
                assert not others, "no call is left behind"

    return asyncio.run(bounded())


def test_the_second_call_wins_and_the_first_is_cancelled() -> None:
    service = Service(never, quick)
    assert run(service) == "quick"
    assert sorted(service.ends) == ["CancelledError", "done"]
    assert service.numbers == [1, 2]


def test_a_quick_call_is_made_once() -> None:
    service = Service(quick)
    assert run(service, HEDGED.using(hedge=30)) == "quick"
    assert service.numbers == [1]


def test_a_slow_first_call_may_still_win() -> None:
    gate = asyncio.Event()

    async def first() -> str:
        await gate.wait()
        return "first"

    async def second() -> str:
        gate.set()
        return await never()

    service = Service(first, second)
    assert run(service) == "first"
    assert sorted(service.ends) == ["CancelledError", "done"]


def test_a_failed_call_leaves_the_other_running() -> None:
    gate = asyncio.Event()

    async def first() -> str:
        await gate.wait()
        return "first"

    async def second() -> str:
        gate.set()
        raise ConnectionError("down")

    service = Service(first, second)
    assert run(service) == "first"
    assert sorted(service.ends) == ["ConnectionError", "done"]


def test_hedges_count_as_attempts() -> None:
    gate = asyncio.Event()

    async def both_fail() -> str:
        if len(service.numbers) > 1:
            gate.set()
        await gate.wait()
        raise ConnectionError("down")

    service = Service(both_fail)
    with pytest.raises(ConnectionError) as caught:
        run(service)
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason, service.numbers) == (3, "attempts", [1, 2, 3])


def test_the_last_attempt_is_not_hedged() -> None:
    service = Service(never, quick)
    with pytest.raises(AttemptTimeout):
        run(service, retry(RetryPolicy(1, 0, 0, 0), hedge=0.001, idempotent=True, attempt_timeout=0.05))
    assert service.numbers == [1]


def test_a_permanent_error_ends_both_calls() -> None:
    service = Service(never, wrong)
    with pytest.raises(ValueError, match="wrong"):
        run(service)
    assert sorted(service.ends) == ["CancelledError", "ValueError"]


def test_a_hedge_is_paid_from_the_budget_and_not_refunded() -> None:
    budget = Budget(capacity=2, cost=1, refill=0, floor=0)
    for number in range(3):
        service = Service(never if number < 2 else quick, quick)
        assert run(service, HEDGED.using(budget=budget)) == "quick"
    service = Service(never, quick)
    with pytest.raises(AttemptTimeout):
        run(service, HEDGED.using(budget=budget, attempt_timeout=0.05))
    assert service.numbers == [1], "a spent budget allows no second call"


def test_an_open_breaker_allows_no_second_call() -> None:
    breaker = Breaker(min_calls=1, failure_rate=0.5)

    async def first() -> str:
        breaker.record(True, asyncio.get_running_loop().time())
        return await never()

    service = Service(first, quick)
    with pytest.raises(AttemptTimeout):
        run(service, HEDGED.using(breaker=breaker, attempt_timeout=0.05))
    assert service.numbers == [1]


def test_both_calls_keep_the_deadline_and_are_cancelled_with_the_caller() -> None:
    service = Service(never)

    async def work() -> None:
        with deadline(0.05):
            await HEDGED.acall(service.call)

    with pytest.raises(AttemptTimeout):
        asyncio.run(work())
    assert service.ends == ["CancelledError", "CancelledError"]

    async def cancelled() -> None:
        async with asyncio.timeout(0.05):
            await HEDGED.acall(service.call)

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())
    assert service.ends == ["CancelledError"] * 4


@pytest.mark.req("C-7")
def test_spent_retries_of_an_inner_layer_end_a_hedged_call() -> None:
    inner = Service(down)
    layer = retry(POLICY, operation="inner")
    service = Service(lambda: layer.acall(inner.call))
    with pytest.raises(ConnectionError) as caught:
        run(service, HEDGED.using(hedge=30))
    assert len(inner.numbers) == 3
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.layer == "inner"


def test_a_hedge_has_a_log_record() -> None:
    heard: list[Record] = []
    unsubscribe = journal.subscribe(heard.append, inline=True)
    try:
        run(Service(never, quick), HEDGED.using(operation="crm", fields={"tenant": "acme"}))
    finally:
        unsubscribe()
    assert [(record.kind, record.fields["attempt"]) for record in heard] == [("hedge", 2), ("recovered", 2)]
    assert (heard[0].fields["operation"], heard[0].fields["tenant"], heard[0].fields["wait"]) == ("crm", "acme", 0.001)


@pytest.mark.req("C-4")
def test_failed_hedged_calls_leave_no_reference_cycle() -> None:
    async def fail() -> None:
        raise ConnectionError("down")

    def go() -> None:
        async def work() -> None:
            try:
                await HEDGED.acall(fail)
            except ConnectionError:
                pass

        loop.run_until_complete(work())

    loop = asyncio.new_event_loop()
    try:
        assert garbage(go) == 0
    finally:
        loop.close()


def test_misuse_of_hedge_is_rejected() -> None:
    with pytest.raises(TypeError, match="set idempotent=True if the call is safe to repeat"):
        retry(hedge=0.1)
    with pytest.raises(TypeError, match="idempotent=True"):
        retry(idempotent=True).using(hedge=0.1).using(idempotent=False)
    with pytest.raises(ValueError, match="hedge must not be negative"):
        retry(hedge=-1, idempotent=True)
    with pytest.raises(TypeError, match="is sync; hedge= needs async code"):

        @HEDGED
        def work() -> None: ...

    with pytest.raises(TypeError, match="is sync"):
        HEDGED.call(len, [])
    with pytest.raises(TypeError, match="a block cannot run twice"):
        HEDGED.attempts()
    with pytest.raises(TypeError, match="generator"):

        @HEDGED
        async def stream() -> Any:
            yield 1

    with pytest.raises(TypeError, match="one request at a time"):
        http.AsyncClient("http://x", retry=HEDGED)
    with pytest.raises(TypeError, match="one request at a time"):
        http.Transport(retry=HEDGED)
