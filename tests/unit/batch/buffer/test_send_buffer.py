"""The send buffer: every caller gets the result of its item."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from redrive import correlate, current, deadline, journal, retry
from redrive.batch import BufferStats, SendBuffer
from redrive.errors import Refused
from redrive.testing import instant
from tests.unit.batch.buffer.world import Receiver, checked_stats, errors, rpc_error, run, tasks

pytestmark = pytest.mark.req("G-4")
AnyBuffer: Any = SendBuffer
"""A buffer for arguments that a type checker would reject."""


@run
async def test_a_full_batch_is_sent_immediately() -> None:
    receiver = Receiver()
    async with SendBuffer(receiver.send, max_batch_size=2, flush_interval=60) as buffer:
        assert await errors(tasks(buffer, 1, 2, 3, 4)) == [None] * 4
    assert receiver.batches == [[1, 2], [3, 4]]
    assert await checked_stats(buffer) == BufferStats(entered=4, accepted=4, batches=2)


@run
async def test_a_partial_batch_is_sent_after_the_interval() -> None:
    receiver = Receiver()
    async with SendBuffer(receiver.send, flush_interval=0.001) as buffer:
        assert await errors(tasks(buffer, 1, 2)) == [None] * 2
    assert receiver.batches == [[1, 2]]


@run
async def test_an_item_added_during_a_flush_is_sent() -> None:
    receiver = Receiver(held=True)
    buffer = SendBuffer(receiver.send, flush_interval=0, in_flight=1)
    first = tasks(buffer, 1)
    await receiver.got(1)
    second = tasks(buffer, 2)
    await asyncio.sleep(0.01)
    assert receiver.batches == [[1]], "one at a time"
    receiver.gates[0].set_result(True)
    await receiver.got(2)
    receiver.gates[1].set_result(True)
    assert await errors(first + second) == [None, None]
    await buffer.aclose()


@run
async def test_batches_in_flight_are_limited() -> None:
    receiver = Receiver(held=True)
    buffer = SendBuffer(receiver.send, max_batch_size=1, in_flight=2)
    sent = tasks(buffer, 1, 2, 3)
    await receiver.got(2)
    await asyncio.sleep(0.01)
    assert receiver.batches == [[1], [2]]
    receiver.gates[1].set_result(True)
    await receiver.got(3)
    for place in (0, 2):
        receiver.gates[place].set_result(True)
    assert await errors(sent) == [None] * 3
    await buffer.aclose()


@run
async def test_in_flight_one_keeps_the_order_during_retries() -> None:
    receiver = Receiver(rpc_error("INTERNAL"), None, rpc_error("UNAVAILABLE"), None)
    with instant():
        async with SendBuffer(receiver.send, max_batch_size=2, in_flight=1) as buffer:
            await errors(tasks(buffer, 1, 2, 3, 4))
    assert receiver.batches == [[1, 2], [1, 2], [3, 4], [3, 4]]


@run
async def test_a_rejected_batch_is_not_retried() -> None:
    receiver = Receiver(False)
    async with SendBuffer(receiver.send, max_batch_size=2) as buffer:
        found = await errors(tasks(buffer, 1, 2))
    assert all(isinstance(error, Refused) for error in found)
    assert len(receiver.batches) == 1
    assert (await checked_stats(buffer)).refused == 2


@run
async def test_each_caller_gets_the_response_of_its_item() -> None:
    wrong = ValueError("too long")
    receiver = Receiver([True, False, wrong])
    async with SendBuffer(receiver.send, max_batch_size=3) as buffer:
        accepted, refused, failed = await errors(tasks(buffer, 1, 2, 3))
    assert accepted is None
    assert isinstance(refused, Refused)
    assert failed is wrong
    assert await checked_stats(buffer) == BufferStats(entered=3, accepted=1, refused=1, failed=1, batches=1)


@run
async def test_an_invalid_response_fails_every_caller() -> None:
    receiver = Receiver("fine")
    async with SendBuffer(receiver.send, max_batch_size=2) as buffer:
        found = await errors(tasks(buffer, 1, 2))
    assert all(isinstance(error, TypeError) and "send says True or None" in str(error) for error in found)


# ---- send_all


@run
async def test_send_all_sends_many_items() -> None:
    receiver = Receiver(held=True)
    pulled = 0

    def items() -> Any:
        nonlocal pulled
        while pulled < 100:
            pulled += 1
            yield pulled

    async with SendBuffer(receiver.send, max_batch_size=10, max_waiting=20) as buffer:
        task = asyncio.create_task(buffer.send_all(items()))
        await receiver.got(2)
        await asyncio.sleep(0.01)
        assert pulled == 21, "no more than there is room for, and one in the hand"
        receiver.held = False
        for gate in receiver.gates:
            gate.set_result(True)
        await task
    assert [item for batch in receiver.batches for item in batch] == list(range(1, 101))
    assert (await checked_stats(buffer)).batches == 10


@run
async def test_send_all_raises_an_exception_group() -> None:
    receiver = Receiver(False, True)
    async with SendBuffer(receiver.send, max_batch_size=2) as buffer:
        with pytest.raises(ExceptionGroup, match="2 of 4 items were not accepted") as caught:
            await buffer.send_all([1, 2, 3, 4])
    assert all(isinstance(error, Refused) for error in caught.value.exceptions)


@run
async def test_a_cancelled_send_all_withdraws_its_items() -> None:
    receiver = Receiver()
    buffer = SendBuffer(receiver.send, flush_interval=60)
    task = asyncio.create_task(buffer.send_all([1, 2, 3]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await buffer.aclose()
    assert (await checked_stats(buffer)).withdrawn == 3
    assert receiver.batches == []


# ---- the context of a flush


@run
async def test_a_flush_does_not_inherit_the_callers_context() -> None:
    seen: list[object] = []

    async def send(batch: list[int]) -> None:
        seen.append(current().remaining)
        raise rpc_error("NOT_FOUND")

    buffer = SendBuffer(send, max_batch_size=1)
    ring = journal.ring()
    unsubscribe = journal.subscribe(ring, inline=True)
    with correlate(request_id="r-1"), deadline(1), pytest.raises(Exception, match="NOT_FOUND"):
        await buffer.send(1)
    unsubscribe()
    assert isinstance(seen[0], float)
    assert seen[0] > 29, "its own time, not the sender's second"
    assert [record.fields.get("request_id") for record in ring.records] == [None]
    await buffer.aclose()


@run
async def test_an_error_leaves_no_reference_cycle() -> None:
    class Plain(Exception):
        pass

    async def send(batch: list[int]) -> None:
        raise Plain

    buffer = SendBuffer(send, max_batch_size=1)
    gc.collect()
    gc.freeze()  # ignore objects of earlier tests
    gc.disable()
    try:
        gone: weakref.ref[Plain] | None = None
        try:
            await buffer.send(1)
        except Plain as error:
            gone = weakref.ref(error)
        await asyncio.sleep(0)
        assert gone is not None
        assert gone() is None
    finally:
        gc.enable()
        gc.unfreeze()
    await buffer.aclose()


# ---- invalid options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch_size": 0}, "max_batch_size must be at least 1"),
        ({"max_waiting": 0}, "max_waiting must be at least 1"),
        ({"in_flight": 0}, "in_flight must be at least 1"),
        ({"flush_interval": -1}, "flush_interval must not be negative"),
        ({"drain": "soon"}, "drain must be seconds"),
        ({"max_batch_bytes": 5}, "max_batch_bytes needs size="),
        ({"max_waiting_bytes": 5}, "max_waiting_bytes needs size="),
        ({"spill": print}, "spill= takes a command"),
        ({"retry": retry(), "codes": ["INTERNAL"]}, "a Retry has a rule of its own"),
        ({"codes": ["NOT_A_CODE"]}, "not 'NOT_A_CODE'"),
        ({"codes": []}, "at least one"),
        ({"behind": 5}, "behind= takes the options of a channel"),
        ({"behind": retry()}, "behind= takes the options of a channel"),
        ({"behind": [("x", 1)]}, "behind= takes the options of a channel"),
    ],
    ids=str,
)
def test_invalid_buffer_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        AnyBuffer(Receiver().send, **options)


def test_a_send_that_is_not_async_is_rejected() -> None:
    with pytest.raises(TypeError, match="an async function of a list of items, not 5"):
        AnyBuffer(5)

    @run
    async def plain() -> None:
        async with AnyBuffer(lambda batch: True, max_batch_size=1) as buffer:
            with pytest.raises(TypeError, match="the send of a SendBuffer is async"):
                await buffer.send(1)

    plain()
