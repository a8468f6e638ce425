"""The send buffer: every sender is told what became of its item, whatever happens to anybody."""

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
from tests.unit.batch.buffer.world import Receiver, balanced, errors, rpc_error, run, tasks

pytestmark = pytest.mark.req("G-4")
AnyBuffer: Any = SendBuffer
"""For what a type checker would refuse."""


@run
async def test_a_full_batch_goes_at_once() -> None:
    receiver = Receiver()
    async with SendBuffer(receiver.send, max_batch_size=2, flush_interval=60) as buffer:
        assert await errors(tasks(buffer, 1, 2, 3, 4)) == [None] * 4
    assert receiver.batches == [[1, 2], [3, 4]]
    assert await balanced(buffer) == BufferStats(entered=4, accepted=4, batches=2)


@run
async def test_the_rest_after_the_interval() -> None:
    receiver = Receiver()
    async with SendBuffer(receiver.send, flush_interval=0.001) as buffer:
        assert await errors(tasks(buffer, 1, 2)) == [None] * 2
    assert receiver.batches == [[1, 2]]


@run
async def test_an_item_that_comes_during_a_flush_is_flushed() -> None:
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
async def test_several_batches_at_once_but_no_more() -> None:
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
async def test_one_at_a_time_keeps_the_order_through_retries() -> None:
    receiver = Receiver(rpc_error("INTERNAL"), None, rpc_error("UNAVAILABLE"), None)
    with instant():
        async with SendBuffer(receiver.send, max_batch_size=2, in_flight=1) as buffer:
            await errors(tasks(buffer, 1, 2, 3, 4))
    assert receiver.batches == [[1, 2], [1, 2], [3, 4], [3, 4]]


@run
async def test_a_refusal_is_for_all_of_a_batch_and_not_tried_again() -> None:
    receiver = Receiver(False)
    async with SendBuffer(receiver.send, max_batch_size=2) as buffer:
        found = await errors(tasks(buffer, 1, 2))
    assert all(isinstance(error, Refused) for error in found)
    assert len(receiver.batches) == 1
    assert (await balanced(buffer)).refused == 2


@run
async def test_answers_for_each_item() -> None:
    wrong = ValueError("too long")
    receiver = Receiver([True, False, wrong])
    async with SendBuffer(receiver.send, max_batch_size=3) as buffer:
        accepted, refused, failed = await errors(tasks(buffer, 1, 2, 3))
    assert accepted is None
    assert isinstance(refused, Refused)
    assert failed is wrong
    assert await balanced(buffer) == BufferStats(entered=3, accepted=1, refused=1, failed=1, batches=1)


@run
async def test_no_answer_at_all_is_told_to_everybody() -> None:
    receiver = Receiver("fine")
    async with SendBuffer(receiver.send, max_batch_size=2) as buffer:
        found = await errors(tasks(buffer, 1, 2))
    assert all(isinstance(error, TypeError) and "send says True or None" in str(error) for error in found)


# ---- one waiter, many items


@run
async def test_many_items_of_one_waiter() -> None:
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
    assert (await balanced(buffer)).batches == 10


@run
async def test_its_errors_come_as_a_group() -> None:
    receiver = Receiver(False, True)
    async with SendBuffer(receiver.send, max_batch_size=2) as buffer:
        with pytest.raises(ExceptionGroup, match="2 of 4 items were not accepted") as caught:
            await buffer.send_all([1, 2, 3, 4])
    assert all(isinstance(error, Refused) for error in caught.value.exceptions)


@run
async def test_it_takes_its_items_back() -> None:
    receiver = Receiver()
    buffer = SendBuffer(receiver.send, flush_interval=60)
    task = asyncio.create_task(buffer.send_all([1, 2, 3]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await buffer.aclose()
    assert (await balanced(buffer)).withdrawn == 3
    assert receiver.batches == []


# ---- what a flush knows


@run
async def test_a_flush_has_nothing_of_its_senders() -> None:
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
async def test_an_error_leaves_no_cycle() -> None:
    class Plain(Exception):
        pass

    async def send(batch: list[int]) -> None:
        raise Plain

    buffer = SendBuffer(send, max_batch_size=1)
    gc.collect()
    gc.freeze()  # what others left behind is not this test's
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


# ---- misuse


@pytest.mark.parametrize(
    ("options", "said"),
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
def test_misuse(options: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        AnyBuffer(Receiver().send, **options)


def test_what_cannot_send() -> None:
    with pytest.raises(TypeError, match="an async function of a list of items, not 5"):
        AnyBuffer(5)

    @run
    async def plain() -> None:
        async with AnyBuffer(lambda batch: True, max_batch_size=1) as buffer:
            with pytest.raises(TypeError, match="the send of a SendBuffer is async"):
                await buffer.send(1)

    plain()
