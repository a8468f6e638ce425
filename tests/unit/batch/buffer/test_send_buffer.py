"""The send buffer: every sender is told what became of its item, whatever happens to anybody."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redrive import RetryPolicy, correlate, current, deadline, journal, outcome, retry
from redrive.batch import BufferStats, SendBuffer
from redrive.errors import BufferClosed, Refused
from redrive.testing import instant
from tests.unit.batch.buffer.world import Receiver, clean, rpc_error

pytestmark = pytest.mark.req("G-4")
AnyBuffer: Any = SendBuffer
"""For what a type checker would refuse."""


def run(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def wrapper() -> None:
        clean(test())  # type: ignore[arg-type]  # a coroutine function of this file

    del wrapper.__wrapped__  # or pytest sees a coroutine function
    return wrapper


def tasks(buffer: SendBuffer[Any], *items: Any) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(buffer.send(item)) for item in items]


async def errors(sent: list[asyncio.Task[None]]) -> list[BaseException | None]:
    async with asyncio.timeout(5):
        return await asyncio.gather(*sent, return_exceptions=True)


async def balanced(buffer: SendBuffer[Any]) -> BufferStats:
    stats = buffer.stats
    gone = stats.accepted + stats.refused + stats.failed + stats.spilled + stats.withdrawn
    assert stats.entered == gone + stats.waiting + stats.in_flight
    return stats


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


@pytest.mark.req("G-3")
@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED"])
def test_codes_that_are_tried_again(code: str) -> None:
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
async def test_spent_retries_give_everybody_the_last_error_each_its_own() -> None:
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
    assert (await balanced(buffer)).failed == 3


@pytest.mark.parametrize(
    "error",
    [*map(rpc_error, "INVALID_ARGUMENT NOT_FOUND PERMISSION_DENIED RESOURCE_EXHAUSTED UNKNOWN".split()), ConnectionResetError(),
     TimeoutError(), ValueError()],
    ids=str,
)  # fmt: skip
def test_nothing_else_is_tried_again(error: Exception) -> None:
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
async def test_any_async_function_and_any_errors_with_a_retry_of_ones_own() -> None:
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
async def test_an_attempt_that_takes_too_long_is_cancelled_and_made_again() -> None:
    receiver = Receiver(held=True)
    left: list[float | None] = []

    async def send(batch: list[int]) -> Any:
        left.append(current().remaining)
        return await receiver.send(batch)

    buffer = SendBuffer(send, max_batch_size=1, attempt_timeout=0.02, retry=RetryPolicy(2, 0, 0, 0))
    sent = tasks(buffer, 1)
    await receiver.got(2)
    receiver.gates[1].set_result(True)
    assert await errors(sent) == [None]
    assert receiver.cancelled == 1
    assert all(seconds is not None and seconds <= 0.02 for seconds in left)
    await buffer.aclose()


@run
async def test_a_list_that_send_empties_is_whole_again_for_the_next_attempt() -> None:
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


# ---- cancellation


@run
async def test_a_cancelled_sender_takes_nobody_with_it() -> None:
    receiver = Receiver(held=True)
    buffer = SendBuffer(receiver.send, max_batch_size=3)
    sent = tasks(buffer, 1, 2, 3)
    await receiver.got(1)
    sent[2].cancel()  # the one that had filled the batch
    await asyncio.sleep(0)
    receiver.gates[0].set_result(True)
    found = await errors(sent)
    assert found[:2] == [None, None]
    assert isinstance(found[2], asyncio.CancelledError)
    assert receiver.cancelled == 0
    await buffer.aclose()


@run
async def test_one_that_is_cancelled_in_time_takes_its_item_back() -> None:
    receiver = Receiver()
    buffer = SendBuffer(receiver.send, max_batch_size=2, flush_interval=60)
    sent = tasks(buffer, 1)
    await asyncio.sleep(0)
    sent[0].cancel()
    await asyncio.sleep(0)
    assert await errors(tasks(buffer, 2, 3)) == [None, None]
    assert receiver.batches == [[2, 3]]
    await buffer.aclose()
    assert (await balanced(buffer)).withdrawn == 1


@run
async def test_a_place_that_becomes_free_lets_the_next_one_in() -> None:
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
async def test_cancelled_at_the_moment_of_the_answer() -> None:
    receiver = Receiver(held=True)
    buffer = SendBuffer(receiver.send, max_batch_size=1, retry=RetryPolicy.disabled())
    sent = tasks(buffer, 1)
    await receiver.got(1)
    receiver.gates[0].set_exception(rpc_error("INTERNAL"))
    for _ in range(8):
        await asyncio.sleep(0)
        if buffer.stats.failed:
            sent[0].cancel()  # answered, and not run since
            break
    found = await errors(sent)
    assert isinstance(found[0], asyncio.CancelledError)
    await buffer.aclose()


# ---- the end


@run
async def test_closing_sends_what_waits() -> None:
    receiver = Receiver()
    async with SendBuffer(receiver.send, flush_interval=60, max_waiting=2) as buffer:
        sent = tasks(buffer, 1, 2, 3)
        await asyncio.sleep(0)
    assert await errors(sent) == [None] * 3
    assert receiver.batches == [[1, 2], [3]]


@run
async def test_closing_during_a_flush_waits_for_it() -> None:
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
async def test_sending_after_the_end_is_told() -> None:
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
async def test_what_is_not_answered_in_time_is_told_so() -> None:
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
    assert (await balanced(buffer)).failed == 2
    [record] = [record for record in ring.records if record.kind == "undelivered"]
    assert (record.fields["items"], record.fields["in_flight"]) == (1, 1)


@run
async def test_a_closing_that_is_cancelled_leaves_nobody_waiting() -> None:
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
async def test_somebody_cancels_every_task_there_is() -> None:
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
async def test_a_flush_that_is_cancelled_before_its_first_step() -> None:
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
async def test_something_inside_send_is_cancelled() -> None:
    """A call whose channel was closed, for example. It is that batch's bad luck, and no other's."""
    receiver = Receiver(asyncio.CancelledError(), None)
    buffer = SendBuffer(receiver.send, max_batch_size=1, in_flight=1)
    first, second = await errors(tasks(buffer, 1, 2))
    assert isinstance(first, BufferClosed)
    assert first.sent
    assert second is None
    await buffer.aclose()


@run
async def test_a_block_that_is_cancelled_does_not_wait_for_long() -> None:
    receiver = Receiver(held=True)
    outside: list[asyncio.Task[None]] = []

    async def block() -> None:
        async with SendBuffer(receiver.send, max_batch_size=1, drain=None) as buffer:
            outside.extend(tasks(buffer, 1))
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await receiver.got(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redrive.batch.buffer.send_buffer.HASTE", 0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [type(error) for error in await errors(outside)] == [BufferClosed]


def test_the_loop_ends_in_the_middle() -> None:
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

    asyncio.run(main())  # cancels all that is left
    assert len(found) == 5


@run
async def test_another_loop_is_told() -> None:
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
        await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(buffer.send(1), loop).result(5))
    assert receiver.batches == [[1]]


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
