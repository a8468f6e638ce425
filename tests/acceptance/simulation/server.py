"""A real HTTP server with a capacity, a queue and outages, for the calibration of `redrive simulate`.

It shares no code with the simulated service. Its capacity is a number of slots that each handle one request at a time.

`python -m tests.acceptance.simulation.server SCENARIO` prints its port. The first line on standard input is the start time on the
monotonic clock, which the processes of one machine share. At the end of standard input it prints the requests of each second.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter, deque
from contextlib import suppress

from redrive.ops.retries.simulation import read_scenario
from redrive.simulation.scenario import OutageScenario

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


class CapacityServer:
    """Handles as many requests at once as the capacity and the latency of the scenario imply."""

    def __init__(self, scenario: OutageScenario) -> None:
        self._service = scenario.service
        self._outages = scenario.outages
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.started = float("inf")
        self.requests: Counter[int] = Counter()

    def _slots(self, now: float) -> float:
        slots = self._service.capacity * self._service.latency
        for outage in self._outages:
            if outage.kind == "slow" and outage.at <= now < outage.end:
                slots *= outage.capacity or 1.0
        return slots

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle the requests of one connection. A client that has gone away still uses its slot."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                response = await self._respond()
                if response is None:
                    await reader.read()  # until the client closes the connection
                    break
                writer.write(response)
                await writer.drain()
        writer.close()

    async def _respond(self) -> bytes | None:
        now = time.monotonic() - self.started
        self.requests[int(now)] += 1
        for outage in self._outages:
            if outage.at <= now < outage.end and outage.kind != "slow" and random.random() < outage.share:
                if outage.kind == "hang":
                    return None
                await asyncio.sleep(self._service.error_latency)
                return UNAVAILABLE
        if len(self._waiting) >= self._service.queue * self._service.capacity:
            await asyncio.sleep(self._service.error_latency)
            return UNAVAILABLE
        if self._busy >= self._slots(now):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._busy += 1
        try:
            await asyncio.sleep(self._service.latency * (1 + self._service.spread * (2 * random.random() - 1)))
        finally:
            self._busy -= 1
            free = int(self._slots(time.monotonic() - self.started)) - self._busy
            while free > 0 and self._waiting:
                self._waiting.popleft().set_result(None)
                free -= 1
        return OK


async def main(file: str) -> None:
    server = CapacityServer(read_scenario(file))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=1024)
    print(listener.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    server.started = float(await loop.run_in_executor(None, sys.stdin.readline))
    await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps(server.requests), flush=True)
    os._exit(0)  # requests that still run are not awaited


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
