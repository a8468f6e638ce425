"""Closing a send buffer: queued items are sent, and every caller gets a result."""

from __future__ import annotations

import asyncio
import threading

import pytest

from redrive import journal
from redrive.batch import SendBuffer
from redrive.errors import BufferClosed
from tests.unit.batch.buffer.world import Receiver, checked_stats, errors, run, tasks

pytestmark = pytest.mark.req("G-4")


@run
async def test_closing_sends_the_queued_items() -> None:
    receiver = Receiver()
    async with SendBuffer(receiver.send, flush_interval=60, max_waiting=2) as buffer:
        sent = tasks(buffer, 1, 2, 3)
        await asyncio.sleep(0)
    assert await errors(sent) == [None] * 3
    assert receiver.batches == [[1, 2], [3]]


@run
async def test_closing_waits_for_a_running_flush() -> None:
    receiver = Receiver(held=True)
    buffer = SendBuffer(receiver.send, max_batch_size=1)
    sent = tasks(buffer, 1)
    await receiver.got(1)
    closing = asyncio.create_task(buffer.aclose())
    again = asyncio.create_task(buffer.aclose())
    await asyncio.sleep(0.01)
    assert not closing.done()
    assert not again.done()
    receiver.gates[0].set_result(True)
    assert await errors(sent) == [None]
    await closing
    await again
    await buffer.aclose()


@run
async def test_sending_after_closing_is_rejected() -> None:
    buffer = SendBuffer(Receiver().send)
    await buffer.aclose()
    with pytest.raises(BufferClosed, match="this SendBuffer is closed: the item was not sent") as caught:
        await buffer.send(1)
    assert not caught.value.sent
    async with SendBuffer(Receiver().send) as buffer:
        pass
    with pytest.raises(BufferClosed):
        await buffer.send_all([1])


@run
async def test_items_without_a_response_in_time_get_buffer_closed() -> None:
    receiver = Receiver(held=True)
    ring = journal.ring()
    unsubscribe = journal.subscribe(ring, inline=True)
    async with SendBuffer(receiver.send, max_batch_size=1, in_flight=1, drain=0.01) as buffer:
        sent = tasks(buffer, 1, 2)
        await receiver.got(1)
    unsubscribe()
    found = await errors(sent)
    assert all(isinstance(error, BufferClosed) for error in found)
    assert [error.sent for error in found if isinstance(error, BufferClosed)] == [True, False]
    assert receiver.cancelled == 1
    assert (await checked_stats(buffer)).failed == 2
    [record] = [record for record in ring.records if record.kind == "undelivered"]
    assert (record.fields["items"], record.fields["in_flight"]) == (1, 1)


@run
async def test_a_cancelled_close_ends_every_caller() -> None:
    receiver = Receiver(held=True)
    buffer = SendBuffer(receiver.send, max_batch_size=1, in_flight=1)
    sent = tasks(buffer, 1, 2)
    await receiver.got(1)
    closing = asyncio.create_task(buffer.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    assert all(isinstance(error, BufferClosed) for error in await errors(sent))
    with pytest.raises(asyncio.CancelledError):
        await closing


@run
async def test_a_cancelled_block_drains_for_a_short_time() -> None:
    receiver = Receiver(held=True)
    outside: list[asyncio.Task[None]] = []

    async def block() -> None:
        async with SendBuffer(receiver.send, max_batch_size=1, drain=None) as buffer:
            outside.extend(tasks(buffer, 1))
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await receiver.got(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redrive.batch.buffer.send_buffer.HURRIED_DRAIN_SECONDS", 0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [type(error) for error in await errors(outside)] == [BufferClosed]


def test_the_event_loop_ends_during_a_flush() -> None:
    receiver = Receiver(held=True)
    found: list[BaseException] = []

    async def sender(buffer: SendBuffer[int], item: int) -> None:
        try:
            await buffer.send(item)
        except BaseException as error:
            found.append(error)
            raise

    async def main() -> None:
        buffer = SendBuffer(receiver.send, max_batch_size=2, in_flight=1)
        main.senders = [asyncio.create_task(sender(buffer, item)) for item in range(5)]  # type: ignore[attr-defined]
        await receiver.got(1)

    asyncio.run(main())  # cancels all remaining tasks
    assert len(found) == 5


@run
async def test_another_event_loop_is_rejected() -> None:
    buffer = SendBuffer(Receiver().send)
    await buffer.send(1)
    wrong: list[BaseException] = []

    def elsewhere() -> None:
        try:
            asyncio.run(buffer.send(2))
        except RuntimeError as error:
            wrong.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "belongs to another event loop" in str(wrong[0])
    await buffer.aclose()


@run
async def test_a_thread_sends_through_the_loop() -> None:
    receiver = Receiver()
    loop = asyncio.get_running_loop()
    async with SendBuffer(receiver.send, flush_interval=0) as buffer:
        await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(buffer.send(1), loop).result(60))
    assert receiver.batches == [[1]]
