"""Cancellation of a caller, of a flush, and of all tasks."""

from __future__ import annotations

import asyncio

import pytest

from redrive import RetryPolicy
from redrive.batch import SendBuffer
from redrive.errors import BufferClosed
from tests.unit.batch.buffer.world import Receiver, checked_stats, errors, rpc_error, run, tasks

pytestmark = pytest.mark.req("G-4")


@run
async def test_a_cancelled_caller_does_not_affect_others() -> None:
    receiver = Receiver(held=True)
    buffer = SendBuffer(receiver.send, max_batch_size=3)
    sent = tasks(buffer, 1, 2, 3)
    await receiver.got(1)
    sent[2].cancel()  # the item that filled the batch
    await asyncio.sleep(0)
    receiver.gates[0].set_result(True)
    found = await errors(sent)
    assert found[:2] == [None, None]
    assert isinstance(found[2], asyncio.CancelledError)
    assert receiver.cancelled == 0
    await buffer.aclose()


@run
async def test_a_caller_cancelled_before_the_flush_withdraws_its_item() -> None:
    receiver = Receiver()
    buffer = SendBuffer(receiver.send, max_batch_size=2, flush_interval=60)
    sent = tasks(buffer, 1)
    await asyncio.sleep(0)
    sent[0].cancel()
    await asyncio.sleep(0)
    assert await errors(tasks(buffer, 2, 3)) == [None, None]
    assert receiver.batches == [[2, 3]]
    await buffer.aclose()
    assert (await checked_stats(buffer)).withdrawn == 1


@run
async def test_a_withdrawal_admits_the_next_item() -> None:
    receiver = Receiver()
    buffer = SendBuffer(receiver.send, max_batch_size=2, flush_interval=60, max_waiting=2)
    first = tasks(buffer, 1)
    await asyncio.sleep(0)
    first[0].cancel()
    await asyncio.sleep(0)
    assert await errors(tasks(buffer, 2, 3, 4, 5)) == [None] * 4
    await buffer.aclose()
    assert receiver.batches == [[2, 3], [4, 5]]


@run
async def test_cancellation_together_with_the_response() -> None:
    receiver = Receiver(held=True)
    buffer = SendBuffer(receiver.send, max_batch_size=1, retry=RetryPolicy.disabled())
    sent = tasks(buffer, 1)
    await receiver.got(1)
    receiver.gates[0].set_exception(rpc_error("INTERNAL"))
    for _ in range(8):
        await asyncio.sleep(0)
        if buffer.stats.failed:
            sent[0].cancel()  # it has a response, and has not run since
            break
    found = await errors(sent)
    assert isinstance(found[0], asyncio.CancelledError)
    await buffer.aclose()


@run
async def test_cancelling_all_tasks_ends_every_caller() -> None:
    receiver = Receiver(held=True)
    buffer = SendBuffer(receiver.send, max_batch_size=1, in_flight=1)
    sent = tasks(buffer, 1, 2)
    await receiver.got(1)
    for task in asyncio.all_tasks() - {asyncio.current_task(), *sent}:
        task.cancel()
    assert all(isinstance(error, BufferClosed) for error in await errors(sent))
    with pytest.raises(BufferClosed):
        await buffer.send(3)
    await buffer.aclose()


@run
async def test_a_flush_cancelled_before_its_first_step() -> None:
    receiver = Receiver()
    buffer = SendBuffer(receiver.send, max_batch_size=1)
    sent = tasks(buffer, 1)
    before = asyncio.all_tasks()
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    assert [type(error) for error in await errors(sent)] == [BufferClosed]
    assert receiver.batches == []
    await buffer.aclose()


@run
async def test_a_cancellation_inside_send_fails_the_batch() -> None:
    """A closed channel cancels its calls, for example. Only that batch fails."""
    receiver = Receiver(asyncio.CancelledError(), None)
    buffer = SendBuffer(receiver.send, max_batch_size=1, in_flight=1)
    first, second = await errors(tasks(buffer, 1, 2))
    assert isinstance(first, BufferClosed)
    assert first.sent
    assert second is None
    await buffer.aclose()
