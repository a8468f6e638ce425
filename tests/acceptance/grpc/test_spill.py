"""Undelivered items are enqueued as jobs in a real ledger with `spill=`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from redrive import App, RetryPolicy, journal
from redrive.batch import BufferStats, SendBuffer
from redrive.errors import BufferClosed, Refused
from redrive.testing import sandbox
from tests.unit.batch.buffer.world import Receiver, clean, rpc_error

pytestmark = pytest.mark.req("G-9")
ONCE = RetryPolicy(2, 0, 0, 0)


class Ledger:
    """An app with a command for signals."""

    def __init__(self, folder: Path) -> None:
        self.app = App(f"sqlite:///{folder / 'ledger.db'}")
        self.sent: list[str] = []

        @self.app.command("signals.send", key="signals:{signal}:{signal}:send:v1")
        def send_later(signal: str) -> None:
            self.sent.append(signal)

        self.command = send_later

    def jobs(self) -> int:
        tally = self.app.ledger.counts().get("signals.send")
        return tally.submitted if tally else 0


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    made = Ledger(tmp_path)
    yield made
    made.app.close()


def tasks(buffer: SendBuffer[str], *items: str) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(buffer.send(item)) for item in items]


def test_spent_retries_become_jobs_and_the_senders_return(ledger: Ledger) -> None:
    async def run() -> None:
        receiver = Receiver(*[rpc_error("UNAVAILABLE")] * 2)
        async with SendBuffer(receiver.send, max_batch_size=3, retry=ONCE, spill=ledger.command) as buffer:
            assert await asyncio.gather(*tasks(buffer, "a", "b", "c")) == [None] * 3
        assert buffer.stats == BufferStats(entered=3, spilled=3, batches=1)

    ring = journal.ring()
    unsubscribe = journal.subscribe(ring, inline=True)
    asyncio.run(run())
    unsubscribe()
    assert ledger.jobs() == 3
    assert [record.fields["items"] for record in ring.records if record.kind == "spilled"] == [3]


def test_an_item_whose_job_is_done_gets_its_error(ledger: Ledger) -> None:
    async def send() -> list[Any]:
        receiver = Receiver(*[rpc_error("UNAVAILABLE")] * 2)
        async with SendBuffer(receiver.send, retry=ONCE, spill=ledger.command) as buffer:
            return await asyncio.gather(*tasks(buffer, "a"), return_exceptions=True)

    with sandbox(ledger.app) as box:
        assert asyncio.run(send()) == [None]
        assert asyncio.run(send()) == [None], "its job is still queued"
        assert box.drain() == 1
        (error,) = asyncio.run(send())
    assert "with the job key 'signals:a:a:send:v1' is done" in error.__notes__[-1]
    assert ledger.sent == ["a"]


def test_permanent_errors_are_not_enqueued(ledger: Ledger) -> None:
    async def run() -> None:
        receiver = Receiver(False, rpc_error("NOT_FOUND"), ValueError("a bug"))
        async with SendBuffer(receiver.send, max_batch_size=1, in_flight=1, retry=ONCE, spill=ledger.command) as buffer:
            found = await asyncio.gather(*tasks(buffer, "a", "b", "c"), return_exceptions=True)
        assert [type(error).__name__ for error in found] == [Refused.__name__, "AioRpcError", "ValueError"]

    asyncio.run(run())
    assert ledger.jobs() == 0


def test_transient_errors_are_enqueued_without_retries(ledger: Ledger) -> None:
    async def run() -> None:
        receiver = Receiver(*[rpc_error("UNAVAILABLE")] * 2)
        async with SendBuffer(receiver.send, max_batch_size=1, retry=RetryPolicy.disabled(), spill=ledger.command) as buffer:
            await buffer.send("a")

    asyncio.run(run())
    assert ledger.jobs() == 1


def test_the_channels_own_retries_count_as_spent(ledger: Ledger) -> None:
    from redrive.grpc import channel_options

    async def run() -> None:
        receiver = Receiver(*[rpc_error("UNAVAILABLE")] * 2)
        async with SendBuffer(receiver.send, max_batch_size=1, behind=channel_options(), spill=ledger.command) as buffer:
            await buffer.send("a")

    asyncio.run(run())
    assert ledger.jobs() == 1


def test_an_item_of_a_cancelled_sender_is_not_enqueued(ledger: Ledger) -> None:
    async def run() -> None:
        receiver = Receiver(held=True)
        buffer = SendBuffer(receiver.send, max_batch_size=2, retry=RetryPolicy.disabled(), spill=ledger.command)
        sent = tasks(buffer, "a", "b")
        await receiver.got(1)
        sent[0].cancel()
        await asyncio.sleep(0)
        receiver.gates[0].set_exception(rpc_error("UNAVAILABLE"))
        await sent[1]
        await buffer.aclose()
        assert (buffer.stats.spilled, buffer.stats.failed) == (1, 1)

    clean(run())
    assert ledger.jobs() == 1


def test_senders_get_their_error_with_a_note_if_the_ledger_fails() -> None:
    class Down:
        def submit(self, item: str, /) -> None:
            raise OSError("no disk" if item == "a" else "no ledger")

    async def run() -> None:
        receiver = Receiver(*[rpc_error("INTERNAL")] * 2)
        async with SendBuffer(receiver.send, max_batch_size=2, retry=ONCE, spill=Down()) as buffer:
            found = await asyncio.gather(*tasks(buffer, "a", "b"), return_exceptions=True)
        notes = [error.__notes__[-1] for error in found if error is not None]
        assert notes == [
            "redrive: could not be enqueued as a job: OSError: no disk",
            "redrive: could not be enqueued as a job: OSError: no ledger",
        ]
        assert buffer.stats.failed == 2

    clean(run())


def test_closing_early_enqueues_unsent_items(ledger: Ledger) -> None:
    async def run() -> None:
        receiver = Receiver(held=True)
        async with SendBuffer(receiver.send, max_batch_size=1, in_flight=1, spill=ledger.command, drain=0.01) as buffer:
            sent = tasks(buffer, "a", "b", "c")
            await receiver.got(1)
        found = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(found[0], BufferClosed), "it may have been sent"
        assert found[0].sent
        assert found[1:] == [None, None]

    clean(run())
    assert ledger.jobs() == 2


def test_a_worker_delivers_the_enqueued_items(ledger: Ledger) -> None:
    async def run() -> None:
        receiver = Receiver(*[rpc_error("UNAVAILABLE")] * 2)
        async with SendBuffer(receiver.send, max_batch_size=2, retry=ONCE, spill=ledger.command) as buffer:
            await asyncio.gather(*tasks(buffer, "a", "b"))

    with sandbox(ledger.app) as box:
        asyncio.run(run())
        assert box.drain() == 2
        assert not box.dead
    assert sorted(ledger.sent) == ["a", "b"]
