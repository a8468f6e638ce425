"""One process that reads a broker: python -m benchmarks.engined.reader BROKER ADDRESS HOW MESSAGES START [LEDGER]

HOW is `loop` (the broker's own client), `faststream`, `failures` or `all` (ours, with this `persist=`). START is when to begin,
in seconds since 1970, so that several processes begin together. It tells the times of its first and last message, and how many.
"""

import asyncio
import os
import sys
import threading
import time
from typing import Any

from benchmarks.apart import tell
from benchmarks.engined.brokers import BROKERS
from benchmarks.streamed.clock import TYPE, Clock
from redrive import App, Event

QUIET_SECONDS = 1.0
"""Without a message for so long, another process has had the last one."""


class Log(Clock):
    """When the first and the last message were handled."""

    def __init__(self, messages: int) -> None:
        super().__init__(messages)
        self.first = self.last = 0.0
        self._lock = threading.Lock()

    def many(self, count: int) -> None:
        now = time.time()
        with self._lock:
            self.first = self.first or now
            self.last = now
            self.handled += count
            if self.handled >= self.messages:
                self.over.set()

    def tick(self) -> None:
        self.many(1)


def measured(broker: str, address: str, how: str, many: str, start: str, ledger: str = "") -> tuple[float, float, int]:
    """The times of the first and last message, and their number."""
    log = Log(int(many))
    time.sleep(max(0.0, float(start) - time.time()))
    if how == "loop":
        BROKERS[broker].loop(address, log)
    elif how == "faststream":
        asyncio.run(_faststream(broker, address, log))
    else:
        _own(broker, address, how, ledger, log)
    return log.first, log.last, log.handled


def _own(broker: str, address: str, persist: Any, ledger: str, log: Log) -> None:
    with App(ledger, migrate=True, sources=[BROKERS[broker].source(address)]) as app:

        @app.on(TYPE, name="noop", persist=persist)
        def noop(_event: Event[dict[str, Any]]) -> None:
            log.tick()

        with app.worker() as worker:
            _wait(log)
            settled = log.handled if persist == "all" else 0
            while worker.status.done < settled:
                time.sleep(0.001)
            if settled:
                log.last = time.time()


def _wait(log: Log) -> None:
    """Until all were handled, or no more came for a while."""
    until = time.time() + 30
    while not log.over.wait(0.05) and time.time() < until:
        if log.last:
            until = log.last + QUIET_SECONDS


async def _faststream(broker: str, address: str, log: Log) -> None:
    client, options = BROKERS[broker].faststream(address)

    topics = [options.pop("topic")] if "topic" in options else []

    @client.subscriber(*topics, **options)  # type: ignore[untyped-decorator]
    async def noop(_message: Any) -> None:
        log.tick()

    await client.start()
    await asyncio.to_thread(_wait, log)
    tell((log.first, log.last, log.handled))
    sys.stdout.flush()
    os._exit(0)  # some of its clients never come back from being closed


if __name__ == "__main__":
    tell(measured(*sys.argv[1:]))
