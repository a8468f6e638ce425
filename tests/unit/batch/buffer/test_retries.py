"""Retries of the send buffer: which errors, how often, and the error at the end."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import RetryPolicy, current, outcome, retry
from redrive.batch import SendBuffer
from redrive.testing import instant
from tests.unit.batch.buffer.world import Receiver, checked_stats, errors, rpc_error, run, tasks

pytestmark = pytest.mark.req("G-4")


@pytest.mark.req("G-3")
@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED"])
def test_retryable_codes(code: str) -> None:
    @run
    async def test() -> None:
        receiver = Receiver(*[rpc_error(code)] * 3)
        with instant() as clock:
            before = clock.monotonic()
            async with SendBuffer(receiver.send, max_batch_size=2) as buffer:
                assert await errors(tasks(buffer, 1, 2)) == [None, None]
            assert clock.monotonic() - before == pytest.approx(0.1 + 0.2 + 0.4)
        assert receiver.batches == [[1, 2]] * 4

    test()


@pytest.mark.req("G-3")
@run
async def test_exhausted_retries_give_each_caller_a_copy_of_the_last_error() -> None:
    receiver = Receiver(*[rpc_error("INTERNAL")] * 4)
    with instant():
        async with SendBuffer(receiver.send, max_batch_size=3) as buffer:
            found = await errors(tasks(buffer, 1, 2, 3))
    assert len({id(error) for error in found}) == 3
    for error in found:
        assert error is not None
        ended = outcome(error)
        assert ended is not None
        assert (ended.attempts, ended.reason) == (4, "attempts")
        assert "Receiver.send after 4 attempts" in error.__notes__[0]
    assert (await checked_stats(buffer)).failed == 3


@pytest.mark.parametrize(
    "error",
    [
        *map(rpc_error, "INVALID_ARGUMENT NOT_FOUND PERMISSION_DENIED RESOURCE_EXHAUSTED UNKNOWN".split()),
        ConnectionResetError(),
        TimeoutError(),
        ValueError(),
    ],
    ids=str,
)
def test_other_errors_are_not_retried(error: Exception) -> None:
    @run
    async def test() -> None:
        receiver = Receiver(error)
        async with SendBuffer(receiver.send, max_batch_size=1) as buffer:
            assert [type(one) for one in await errors(tasks(buffer, 1))] == [type(error)]
        assert len(receiver.batches) == 1

    test()


@pytest.mark.req("G-8")
def test_pushback_is_obeyed() -> None:
    @run
    async def test() -> None:
        for said, waited in (("1500", 1.5), ("5", 0.1)):
            receiver = Receiver(rpc_error("INTERNAL", ("grpc-retry-pushback-ms", said)))
            with instant() as clock:
                before = clock.monotonic()
                async with SendBuffer(receiver.send, max_batch_size=1) as buffer:
                    assert await errors(tasks(buffer, 1)) == [None]
                assert clock.monotonic() - before == pytest.approx(waited)
        receiver = Receiver(rpc_error("INTERNAL", ("grpc-retry-pushback-ms", "-1")))
        async with SendBuffer(receiver.send, max_batch_size=1) as buffer:
            assert [str(error)[:12] for error in await errors(tasks(buffer, 1))] == ["<AioRpcError"]
        assert len(receiver.batches) == 1, "the server said: don't"

    test()


@pytest.mark.req("G-9")
@run
async def test_a_custom_retry_brings_its_own_rule() -> None:
    receiver = Receiver(ConnectionResetError(), None)
    with instant():
        async with SendBuffer(receiver.send, max_batch_size=1, retry=retry(max_attempts=2, operation="mail")) as buffer:
            assert await errors(tasks(buffer, 1)) == [None]
    assert len(receiver.batches) == 2
    assert buffer.__redrive__.operation == "mail"


@run
async def test_a_policy_keeps_the_rule_and_has_its_own_waits() -> None:
    receiver = Receiver(rpc_error("INTERNAL"), None)
    with instant() as clock:
        before = clock.monotonic()
        async with SendBuffer(receiver.send, max_batch_size=1, retry=RetryPolicy(2, 3.0, 60, 0)) as buffer:
            assert await errors(tasks(buffer, 1)) == [None]
        assert clock.monotonic() - before == 3.0


@run
async def test_a_slow_attempt_is_cancelled_and_retried() -> None:
    receiver = Receiver(held=True)
    left: list[float | None] = []

    async def send(batch: list[int]) -> Any:
        left.append(current().remaining)
        return await receiver.send(batch) if len(left) == 1 else True  # in time if the loop does not run in between

    buffer = SendBuffer(send, max_batch_size=1, attempt_timeout=0.02, retry=RetryPolicy(2, 0, 0, 0))
    assert await errors(tasks(buffer, 1)) == [None]
    assert receiver.cancelled == 1
    assert all(seconds is not None and seconds <= 0.02 for seconds in left)
    await buffer.aclose()


@run
async def test_every_attempt_gets_its_own_list() -> None:
    seen: list[int] = []

    async def send(batch: list[int]) -> None:
        seen.append(len(batch))
        batch.clear()
        if len(seen) == 1:
            raise rpc_error("INTERNAL")

    with instant():
        async with SendBuffer(send, max_batch_size=2) as buffer:
            await errors(tasks(buffer, 1, 2))
    assert seen == [2, 2]
