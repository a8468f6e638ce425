"""The send buffer, compared with a handwritten batch loop and with one RPC per item, on the same server."""

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from benchmarks.clients.memory import measure_memory
from benchmarks.clients.part import Part, Progress
from benchmarks.clients.senders import OPTIONS, Rpc, send_single_items, send_with_buffer, send_with_loop, send_with_one_in_flight
from benchmarks.interval import Interval
from benchmarks.ledger_suite.results import Pair
from benchmarks.plot import Bar, Panel
from benchmarks.table import Table
from benchmarks.target import Outcome, Target

WAITERS = (1, 100, 10_000)
ROUNDS = 15
LOOP, SINGLE, OURS, ALONE = "handwritten batch loop", "one RPC per item", "redrive SendBuffer", "redrive SendBuffer, in_flight=1"
Rates = dict[tuple[str, int], Pair]
"""Items per second by case and number of concurrent senders: the base and Redrive."""
NOTE = (
    "SendBuffer sends items of 100 bytes in batches of 50, with a unary method of a grpc.aio server in another process. In each "
    "round, the buffer runs between two runs of a handwritten loop, which has no retries, limits or shutdown. A single waiter "
    "sends all its items with `send_all`, and the loop sends slices. With 100 and 10,000 waiters, each waiter awaits each of its "
    "items. Single RPCs have at most 1,000 waiters, because a channel fails some of 10,000 concurrent calls. By default, the "
    "buffer has four batches in flight, and the loop has one."
)


def measure(quick: bool, progress: Progress) -> Part:
    """Measure the send buffer."""
    waiters = (*WAITERS[:2], 200) if quick else WAITERS
    items, singles = (300, 20) if quick else (20_000, 2_000)
    with _receiver() as port:
        rates = asyncio.run(_rounds(port, 1 if quick else ROUNDS, waiters, items, singles, progress))
    return _report(rates, waiters, measure_memory(waiters[-1]))


@contextmanager
def _receiver() -> Iterator[int]:
    command = [sys.executable, str(Path(__file__).with_name("receiver.py"))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


async def _rounds(port: int, rounds: int, waiters: tuple[int, ...], items: int, singles: int, progress: Progress) -> Rates:
    rates: Rates = {}

    async def rate(send: Callable[[Rpc, int, int], Awaitable[None]], wait: int, count: int) -> float:
        gc.collect()
        began = time.perf_counter()
        await send(rpc, wait, count)
        return count / (time.perf_counter() - began)

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        method: Any = channel.unary_unary("/signals.Signals/Send")

        async def rpc(message: bytes) -> bytes:
            response: bytes = await method(message, timeout=30)
            return response

        await rate(send_with_loop, 100, singles)
        for number in range(rounds):
            for wait in waiters:
                progress(f"send buffer: round {number + 1} of {rounds}, {wait:,} waiters")
                count = max(items, wait)
                loops = [await rate(send_with_loop, wait, count)]
                own = await rate(send_with_buffer, wait, count)
                loops.append(await rate(send_with_loop, wait, count))
                alone = await rate(send_with_one_in_flight, wait, count)
                loops.append(await rate(send_with_loop, wait, count))
                single = await rate(send_single_items, wait, singles)
                rates.setdefault((LOOP, wait), Pair()).add(loops[0], own, loops[1])
                rates.setdefault((ALONE, wait), Pair()).add(loops[1], alone, loops[2])
                rates.setdefault((SINGLE, wait), Pair()).add(single, own, single)
    return rates


def _report(rates: Rates, waiters: tuple[int, ...], memory: dict[str, float]) -> Part:
    part = Part(notes=[NOTE])
    rows: list[tuple[str, ...]] = []
    for wait in waiters:
        loop, alone, single = rates[LOOP, wait], rates[ALONE, wait], rates[SINGLE, wait]
        waiting = "1 waiter" if wait == 1 else f"{wait:,} waiters"
        part.outcomes += [
            Outcome(Target(f"SendBuffer, {waiting}, vs {LOOP}", "≥", 0.8, "×"), loop.ratio),
            Outcome(Target(f"SendBuffer, {waiting}, vs {SINGLE}", "≥", 8, "×"), single.ratio),
        ]
        rows.append((SINGLE, f"{wait:,}", _rate(single.base), ""))
        rows.append((LOOP, f"{wait:,}", _rate(loop.base), ""))
        rows.append((OURS, f"{wait:,}", _rate(loop.own), f"{loop.ratio}×"))
        rows.append((ALONE, f"{wait:,}", _rate(alone.own), f"{alone.ratio}×"))
        bars = [Bar(SINGLE, _median(single.base), "peer"), Bar(LOOP, _median(loop.base), "floor")]
        part.panels.append(
            Panel(f"Items per second, {waiting}", "", [*bars, Bar("redrive SendBuffer", _median(loop.own), "ours")])
        )
    target = Target("SendBuffer, memory per queued item", "≤", 1024, " bytes")
    part.outcomes.append(Outcome(target, Interval.exactly(round(memory["SendBuffer"]))))
    part.tables.append(Table("Items per second", ("case", "waiters", "items/s", "vs loop"), rows))
    sizes = [(case, f"{count:.0f}") for case, count in memory.items()]
    part.tables.append(Table(f"Memory per queued item without the item, {waiters[-1]:,} items", ("case", "bytes"), sizes))
    return part


def _rate(rates: list[float]) -> str:
    interval = Interval.of(rates)
    return f"{interval.median:,.0f} ({interval.low:,.0f}–{interval.high:,.0f})"


def _median(rates: list[float]) -> float:
    return Interval.of(rates).median
