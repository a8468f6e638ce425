"""Read messages of a broker: python -m benchmarks.engines_suite.reader BROKER ADDRESS METHOD MESSAGES START [LEDGER]

METHOD is `loop` (the broker's client), `floor` (the same, with JSON and an empty handler), `faststream`, or the `persist=` of
Redrive: `failures`, `all` or `all-sqlite`. START is a Unix timestamp, so that several processes start together. The result is the
time of the first message, of the last one, and the number.
"""

import asyncio
import json
import os
import sys
import time
from itertools import count
from typing import Any

from benchmarks.engines_suite.brokers import BROKERS
from benchmarks.isolation import print_result
from benchmarks.messages_suite.clock import TYPE, Clock
from redrive import App, Event

QUIET_SECONDS = 1.0
"""After this time without a message, another process has received the last one."""


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
        if self.handled >= self.messages:
            self.over.set()

    def tick(self) -> None:
        """Add a message. Threads may share it: `next` is atomic. It is a part of what is measured, so it is short."""
        number = next(self._calls)
        self.last = time.time()
        if number == 1:
            self.first = self.last
        if number >= self.messages:
            self.over.set()

    def stop(self) -> None:
        """Count the calls of `tick`. The last number is the next one that would be taken, minus 1."""
        self.handled = self.handled or next(self._calls) - 1


def measure(broker: str, address: str, method: str, messages: str, start: str, ledger: str = "") -> tuple[float, float, int]:
    """Return the times of the first and last message, and the number of messages."""
    times = Timestamps(int(messages))
    time.sleep(max(0.0, float(start) - time.time()))
    if method in ("loop", "floor"):
        BROKERS[broker].loop(address, times, _handle if method == "floor" else None)
    elif method == "faststream":
        asyncio.run(_faststream(broker, address, times))
    else:
        _own(broker, address, method, ledger, times)
    return times.first, times.last, times.handled


def _handle(body: bytes) -> None:
    """Do what any handler needs: parse the body, and call a function."""
    _noop(json.loads(body))


def _noop(_payload: object) -> None:
    pass


def _own(broker: str, address: str, persist: Any, ledger: str, times: Timestamps) -> None:
    with App(ledger, migrate=True, sources=[BROKERS[broker].source(address)]) as app:

        @app.on(TYPE, name="noop", persist=persist.partition("-")[0])
        def noop(_event: Event[dict[str, Any]]) -> None:
            times.tick()

        with app.worker() as worker:
            _wait(times)
            times.stop()
            settled = 0 if persist == "failures" else times.handled
            while worker.status.done < settled:
                time.sleep(0.001)
            if settled:
                times.last = time.time()


def _wait(times: Timestamps) -> None:
    """Wait until all messages are handled, or none arrives for a while."""
    until = time.time() + 30
    while not times.over.wait(0.05) and time.time() < until:
        if times.last:
            until = times.last + QUIET_SECONDS


async def _faststream(broker: str, address: str, times: Timestamps) -> None:
    client, options = BROKERS[broker].faststream(address)

    topics = [options.pop("topic")] if "topic" in options else []

    @client.subscriber(*topics, **options)  # type: ignore[untyped-decorator]
    async def noop(_message: Any) -> None:
        times.tick()

    await client.start()
    await asyncio.to_thread(_wait, times)
    times.stop()
    print_result((times.first, times.last, times.handled))
    sys.stdout.flush()
    os._exit(0)  # some of its clients hang on close


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
