"""Read messages of a broker: python -m benchmarks.engines_suite.reader BROKER ADDRESS METHOD MESSAGES BOARD PROCESS [LEDGER]

METHOD is `loop` (the broker's client), `floor` (the same, with JSON and an empty handler), `faststream`, or the `persist=` of
Redrive: `failures`, `all` or `all-sqlite`. BOARD is the file by which several processes start and stop together. The result is
the time of the first message, of the last one, and the number.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from benchmarks.engines_suite.board import POLL_SECONDS, READING, STOPPED, Board, wait_until
from benchmarks.engines_suite.brokers import BROKERS
from benchmarks.isolation import print_result
from benchmarks.messages_suite.clock import TYPE, Clock
from redrive import App, Event

MAX_SECONDS = 15.0
"""Time of one measurement. The rate is that of the messages until then."""
STAMP_MESSAGES = 50
"""Calls between two looks at the clock."""
JOIN_SECONDS = 0.1


class Timestamps(Clock):
    """Records when the first and the last message were handled."""

    def __init__(self, messages: int) -> None:
        super().__init__(messages)
        self.first = self.last = 0.0
        self._calls = count(1)

    def add(self, count: int) -> None:
        """Add messages of a loop, which has one thread."""
        self.last = time.time()
        self.first = self.first or self.last
        self.handled += count
        if self.handled >= self.messages or self.last - self.first > MAX_SECONDS:
            self.over.set()

    def tick(self) -> None:
        """Add a message. Threads may share it: `next` is atomic. It is a part of what is measured, so it is short."""
        number = next(self._calls)
        if number % STAMP_MESSAGES < 2:
            self.last = time.time()
            if number == 1:
                self.first = self.last

    @property
    def ticks(self) -> int:
        """Number of calls of `tick`."""
        return int(self._calls.__reduce__()[1][0]) - 1

    def follow(self, board: Board, process: int) -> None:
        """Report the number of calls until the measurement is over."""
        while board.phase != STOPPED:
            board.report(process, self.ticks)
            time.sleep(POLL_SECONDS)
        self.handled = self.ticks


class GatedSource:
    """A source that joins its group at once, and is read when all processes are ready."""

    def __init__(self, source: Any, board: Board, join: Callable[[Any, int], bool], report_ready: Callable[[], None]) -> None:
        self._source, self._board = source, board
        self._join, self._report_ready = join, report_ready
        self.name, self.batch, self.announces = source.name, source.batch, source.announces
        self.to_event = source.to_event

    @property
    def _has_started(self) -> bool:
        return self._board.phase >= READING

    def connect(self) -> Any:
        """Return a consumer of the source. Its first read waits for the others."""
        consumer = self._source.connect()
        read = consumer.read

        def read_later(limit: int, wait: float, /) -> Sequence[Any]:
            consumer.read = read
            if self._has_started:
                return read(limit, wait)  # type: ignore[no-any-return]
            if self._join(consumer, len(self._board.counts)):
                self._report_ready()
            if not wait_until(lambda: self._has_started, JOIN_SECONDS):
                consumer.read = read_later
            return ()

        consumer.read = read_later
        return consumer


def measure(
    broker: str, address: str, method: str, messages: str, board_file: str, process: str, ledger: str = ""
) -> tuple[float, float, int]:
    """Return the times of the first and last message, and the number of messages."""
    times, board = Timestamps(int(messages)), Board(board_file)
    if method in ("loop", "floor"):
        board.report(int(process), 0)
        BROKERS[broker].loop(address, times, _handle if method == "floor" else None)
        board.report(int(process), times.handled)
    elif method == "faststream":
        asyncio.run(_faststream(broker, address, times, board, int(process)))
    else:
        _own(broker, address, method, ledger, times, board, int(process))
    return times.first, times.last, times.handled


def _handle(body: bytes) -> None:
    """Do what any handler needs: parse the body, and call a function."""
    _noop(json.loads(body))


def _noop(_payload: object) -> None:
    pass


def _own(broker: str, address: str, persist: Any, ledger: str, times: Timestamps, board: Board, process: int) -> None:
    source = GatedSource(BROKERS[broker].source(address), board, BROKERS[broker].join, lambda: board.report(process, 0))
    with App(ledger, sources=[source]) as app:

        @app.on(TYPE, name="noop", persist=persist.partition("-")[0])
        def noop(_event: Event[dict[str, Any]]) -> None:
            times.tick()

        with app.worker() as worker:
            while board.phase < READING:
                time.sleep(POLL_SECONDS)
            times.follow(board, process)
            if persist != "failures":
                while worker.status.done < times.handled:
                    time.sleep(0.001)
                times.last = time.time()


async def _faststream(broker: str, address: str, times: Timestamps, board: Board, process: int) -> None:
    client, options = BROKERS[broker].faststream(address)

    topics = [options.pop("topic")] if "topic" in options else []

    @client.subscriber(*topics, **options)  # type: ignore[untyped-decorator]
    async def noop(_message: Any) -> None:
        times.tick()

    await client.start()
    await asyncio.to_thread(times.follow, board, process)
    print_result((times.first, times.last, times.handled))
    sys.stdout.flush()
    os._exit(0)  # some of its clients hang on close


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
