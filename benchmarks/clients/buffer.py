"""The send buffer's half: beside a batch loop by hand and one RPC for each item, over the same method of the same server."""

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

from benchmarks.clients.half import Half, Show
from benchmarks.clients.senders import OPTIONS, Rpc, buffered, by_hand, one_at_a_time, one_by_one
from benchmarks.clients.waiting import memory
from benchmarks.interval import Interval
from benchmarks.ledger_suite.results import Pair
from benchmarks.plot import Bar, Panel
from benchmarks.table import Table
from benchmarks.target import Outcome, Target

WAITERS = (1, 100, 10_000)
ROUNDS = 15
LOOP, SINGLE, OURS, ALONE = "batch loop by hand", "one RPC for each item", "redrive SendBuffer", "redrive SendBuffer, in_flight=1"
Rates = dict[tuple[str, int], Pair]
"""Items in a second, by what is measured and how many wait: the yardstick's, and ours."""
NOTE = (
    "SendBuffer: items of 100 bytes in batches of 50, over a unary method of a grpc.aio server in a process of its own. In every "
    "round the buffer stands between two runs of the loop by hand, which has no retries, no limits and no end. One waiter hands "
    "all its items over at once (`send_all`; slices by hand); 100 and 10,000 wait for each of theirs, but for single calls, of "
    "which a channel fails some where 10,000 are made at once: 1,000 there. By default the buffer has four batches in flight, "
    "the loop has one."
)


def half(quick: bool, show: Show) -> Half:
    """Measure."""
    waiters = (*WAITERS[:2], 200) if quick else WAITERS
    items, singles = (300, 20) if quick else (20_000, 2_000)
    with _receiver() as port:
        rates = asyncio.run(_rounds(port, 1 if quick else ROUNDS, waiters, items, singles, show))
    return _report(rates, waiters, memory(waiters[-1]))


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


async def _rounds(port: int, rounds: int, waiters: tuple[int, ...], items: int, singles: int, show: Show) -> Rates:
    rates: Rates = {}

    async def rate(way: Callable[[Rpc, int, int], Awaitable[None]], wait: int, count: int) -> float:
        gc.collect()
        began = time.perf_counter()
        await way(rpc, wait, count)
        return count / (time.perf_counter() - began)

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        method: Any = channel.unary_unary("/signals.Signals/Send")

        async def rpc(message: bytes) -> bytes:
            answer: bytes = await method(message, timeout=30)
            return answer

        await rate(by_hand, 100, singles)
        for number in range(rounds):
            for wait in waiters:
                show(f"send buffer: round {number + 1} of {rounds}, {wait:,} waiters")
                count = max(items, wait)
                loops = [await rate(by_hand, wait, count)]
                own = await rate(buffered, wait, count)
                loops.append(await rate(by_hand, wait, count))
                alone = await rate(one_at_a_time, wait, count)
                loops.append(await rate(by_hand, wait, count))
                single = await rate(one_by_one, wait, singles)
                rates.setdefault((LOOP, wait), Pair()).add(loops[0], own, loops[1])
                rates.setdefault((ALONE, wait), Pair()).add(loops[1], alone, loops[2])
                rates.setdefault((SINGLE, wait), Pair()).add(single, own, single)
    return rates


def _report(rates: Rates, waiters: tuple[int, ...], held: dict[str, float]) -> Half:
    found = Half(notes=[NOTE])
    rows: list[tuple[str, ...]] = []
    for wait in waiters:
        loop, alone, single = rates[LOOP, wait], rates[ALONE, wait], rates[SINGLE, wait]
        said = "1 waiter" if wait == 1 else f"{wait:,} waiters"
        found.outcomes += [
            Outcome(Target(f"SendBuffer, {said}: rate of a batch loop by hand", "≥", 0.8, "×"), loop.ratio),
            Outcome(Target(f"SendBuffer, {said}: rate of one RPC for each item", "≥", 8, "×"), single.ratio),
        ]
        rows.append((SINGLE, f"{wait:,}", _rate(single.base), ""))
        rows.append((LOOP, f"{wait:,}", _rate(loop.base), ""))
        rows.append((OURS, f"{wait:,}", _rate(loop.own), f"{loop.ratio}×"))
        rows.append((ALONE, f"{wait:,}", _rate(alone.own), f"{alone.ratio}×"))
        bars = [Bar(SINGLE, _typical(single.base), "peer"), Bar(LOOP, _typical(loop.base), "floor")]
        found.panels.append(
            Panel(f"Items in a second, {said}", "", [*bars, Bar("redrive SendBuffer", _typical(loop.own), "ours")])
        )
    waits = Target("SendBuffer: an item that waits, beside the item", "≤", 1024, " bytes")
    found.outcomes.append(Outcome(waits, Interval.exactly(round(held["SendBuffer"]))))
    found.tables.append(Table("Items in a second", ("what", "waiters", "items/s", "to the loop"), rows))
    bytes_held = [(what, f"{count:.0f}") for what, count in held.items()]
    found.tables.append(Table(f"Bytes of an item that waits, beside the item, of {waiters[-1]:,}", ("what", "bytes"), bytes_held))
    return found


def _rate(rates: list[float]) -> str:
    found = Interval.of(rates)
    return f"{found.median:,.0f} ({found.low:,.0f}–{found.high:,.0f})"


def _typical(rates: list[float]) -> float:
    return Interval.of(rates).median
