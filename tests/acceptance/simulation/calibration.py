"""Calibration: a scenario with real clients and a real server, beside the simulation of it.

`python -m tests.acceptance.simulation.calibration` (`make calibrate`) runs every policy of `calibration.toml` three times, with
200 clients and `redrive.retry`. It prints each figure beside the simulated one, and fails if one differs by more than 15 %.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from redrive import Breaker, Budget, Retry, retry
from redrive.core.budget import UNLIMITED
from redrive.errors import RedriveError
from redrive.ops.retries.simulation import read_scenario, simulate
from redrive.simulation.figures import LoadCurve, summarise
from redrive.simulation.policies import SimulatedPolicy
from redrive.simulation.scenario import OutageScenario

SCENARIO = Path(__file__).with_name("calibration.toml")
TOLERANCE = 0.15
RUNS = 3
SEEDS = range(1, 8)
MAX_LAG_SECONDS = 1.0
"""Delay of the event loop from which the machine is too busy, and a run says nothing."""
MAX_BUSY_RUNS = 5
BIN_SECONDS = 5
"""Seconds that are one point of the load curves. Single seconds of 200 clients are noise."""


class TooBusy(Exception):
    """The machine did not let the clients run in time."""


class Measured(NamedTuple):
    """What a run of real clients, or of simulated ones, comes to."""

    attempts: float
    amplification: float
    success_rate: float
    recovered_after: float
    curve: tuple[float, ...]
    """Requests in each interval of `BIN_SECONDS`."""


class RealFleet:
    """Clients with `redrive.retry`, as tasks of one event loop."""

    def __init__(self, scenario: OutageScenario, policy: SimulatedPolicy, port: int) -> None:
        self._scenario = scenario
        self._port = port
        self._counts: dict[str, Counter[int]] = {name: Counter() for name in ("calls", "failed_attempts", "succeeded", "failed")}
        self._started = 0.0
        self._longest_lag = 0.0
        self._layers = [
            retry(
                max_attempts=int(policy.max_attempts),
                backoff=policy.backoff,
                timeout=policy.timeout,
                attempt_timeout=scenario.clients.attempt_timeout,
                budget=UNLIMITED if policy.budget is None else Budget(**policy.budget),
                breaker=None if policy.breaker is None else Breaker(**policy.breaker),  # type: ignore[arg-type]
            )
            for _ in range(scenario.clients.processes)
        ]

    async def run(self, started: float) -> dict[str, Counter[int]]:
        """Run all clients until the end of the scenario. Raise TooBusy if the machine was."""
        self._started = started
        lag = asyncio.create_task(self._watch_lag())
        clients = [asyncio.create_task(self._client(number)) for number in range(self._scenario.clients.count)]
        await asyncio.sleep(max(0.0, started + self._scenario.seconds - time.monotonic()))
        for task in (lag, *clients):
            task.cancel()
        await asyncio.gather(lag, *clients, return_exceptions=True)
        await asyncio.sleep(0.05)  # the event loop closes the sockets
        if self._longest_lag > MAX_LAG_SECONDS:
            raise TooBusy(f"the event loop was {self._longest_lag:.2f} s late")
        return self._counts

    async def _watch_lag(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.02)
            self._longest_lag = max(self._longest_lag, time.monotonic() - before - 0.02)

    async def _client(self, number: int) -> None:
        with closing(_Connection(self._port)) as connection:
            await self._make_calls(connection, self._layers[number % len(self._layers)])

    async def _make_calls(self, connection: _Connection, layer: Retry) -> None:
        every = self._scenario.clients.every

        async def request() -> None:
            try:
                await connection.request()
            except BaseException:
                connection.close()
                self._count("failed_attempts")
                raise

        guarded = layer(request)
        draw = random.random()
        begin = self._started + every * (draw if draw < 0.5 else 1.5 - (2 * (1 - draw)) ** 0.5)
        while True:
            await asyncio.sleep(max(0.0, begin - time.monotonic()))
            self._count("calls")
            begin = time.monotonic()
            try:
                await guarded()
            except (ConnectionError, RedriveError, TimeoutError):
                self._count("failed")
            else:
                self._count("succeeded")
            begin = max(time.monotonic(), begin + every * (0.5 + random.random()))

    def _count(self, name: str) -> None:
        self._counts[name][int(time.monotonic() - self._started)] += 1


class _Connection:
    """A connection that is kept open, and opened again after a failure."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self) -> None:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        response = await reader.readuntil(b"\r\n\r\n")
        if b" 503 " in response:
            raise ConnectionResetError("503")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def run_for_real(file: Path, scenario: OutageScenario, policy: SimulatedPolicy) -> Measured:
    """Run a policy once, in real time."""
    command = [sys.executable, "-m", "tests.acceptance.simulation.server", str(file)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline())
        started = time.monotonic() + 0.2
        server.stdin.write(f"{started}\n")
        server.stdin.flush()
        counts = asyncio.run(RealFleet(scenario, policy, port).run(started))
        output, _ = server.communicate(timeout=30)
    finally:
        server.kill()
        server.wait()
    counts["attempts"] = Counter({int(second): count for second, count in json.loads(output).items()})
    seconds = range(int(scenario.seconds))
    rows = {name: tuple(counter[second] for second in seconds) for name, counter in counts.items()}
    return _measure(scenario, LoadCurve(**rows, reasons={}))


def measure_policy(file: Path, scenario: OutageScenario, policy: SimulatedPolicy) -> Measured:
    """Run a policy in real time, again if the machine was too busy."""
    for _ in range(MAX_BUSY_RUNS - 1):
        try:
            return run_for_real(file, scenario, policy)
        except TooBusy:
            continue
    return run_for_real(file, scenario, policy)


def simulate_run(scenario: OutageScenario, policy: SimulatedPolicy) -> Measured:
    """Return the medians of several simulations of a policy."""
    alone = replace(scenario, policies=(policy,))
    return medians([_measure(scenario, simulate(alone, seed=seed).runs[0].curve) for seed in SEEDS])


def medians(runs: Sequence[Measured]) -> Measured:
    """Return the median of each figure."""
    first, *_ = runs
    curve = tuple(median(run.curve[place] for run in runs) for place in range(len(first.curve)))
    return Measured(
        attempts=median(run.attempts for run in runs),
        amplification=median(run.amplification for run in runs),
        success_rate=median(run.success_rate for run in runs),
        recovered_after=median(run.recovered_after for run in runs),
        curve=curve,
    )


def _measure(scenario: OutageScenario, curve: LoadCurve) -> Measured:
    figures = summarise(scenario, curve)
    never = scenario.seconds
    bins = range(0, len(curve.attempts) - BIN_SECONDS + 1, BIN_SECONDS)
    return Measured(
        attempts=figures.attempts,
        amplification=figures.amplification,
        success_rate=figures.success_rate,
        recovered_after=never if figures.recovered_after is None else figures.recovered_after,
        curve=tuple(sum(curve.attempts[first : first + BIN_SECONDS]) / BIN_SECONDS for first in bins),
    )


def differences(real: Measured, model: Measured) -> dict[str, float]:
    """Return by how much each figure of the simulation differs from reality, as a part of reality.

    The load curves differ by the sum of the differences of their points. A recovery is measured in whole seconds, so a difference
    of a second is none.
    """
    relative = {
        name: abs(getattr(model, name) - getattr(real, name)) / getattr(real, name)
        for name in ("attempts", "amplification", "success_rate")
    }
    recovery = max(0.0, abs(model.recovered_after - real.recovered_after) - 1)
    relative["recovered_after"] = recovery / max(real.recovered_after, 1.0)
    gaps = sum(abs(mine - theirs) for mine, theirs in zip(model.curve, real.curve, strict=True))
    return relative | {"curve": gaps / sum(real.curve)}


def main() -> int:
    """Calibrate every policy. Return 1 if a figure differs too much."""
    scenario, is_calibrated = read_scenario(str(SCENARIO)), True
    for policy in scenario.policies:
        real = medians([measure_policy(SCENARIO, scenario, policy) for _ in range(RUNS)])
        model = simulate_run(scenario, policy)
        print(f"{policy.name}", flush=True)
        for name, difference in differences(real, model).items():
            values = "" if name == "curve" else f"real {getattr(real, name):9.3f}, simulated {getattr(model, name):9.3f}, "
            print(f"  {name:16}{values}difference {100 * difference:.1f} %", flush=True)
            is_calibrated = is_calibrated and difference <= TOLERANCE
    print("calibrated" if is_calibrated else f"NOT CALIBRATED: a figure differs by more than {100 * TOLERANCE:.0f} %")
    return 0 if is_calibrated else 1


if __name__ == "__main__":
    sys.exit(main())
