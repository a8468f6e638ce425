"""FleetRun: the calls of a whole fleet under one policy, in steps of simulated time.

Each client has one next event: the start of a call or of a retry, or the end of an attempt. The
events of a time step are taken together, as arrays. No response arrives within the step of its
request, so the ends of a step come before its starts, and their order is right to within a step.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import numpy as np

from .figures import COUNTED, LoadCurve
from .layer_state import BREAKER_OPEN, NESTED, REASONS, RETRY, Flags, Ints, LayerState
from .policies import SimulatedPolicy
from .scenario import OutageScenario
from .service import SUCCESS, TIMEOUT, Codes, Floats, ServiceModel

BLOCK_STEPS = 8
"""Steps for which the clients with an event are collected together."""
MAX_ATTEMPTS = 500_000_000
"""Attempts of one run. A policy without waits makes more than any machine can simulate."""
IDLE, WAITING, RUNNING = 0, 1, 2
"""What the next event of a client is: a new call, a retry, or the end of its attempt."""
Progress = Callable[[float], None]


class TooManyAttempts(ValueError):
    """The clients of a scenario make more attempts than can be simulated."""


class FleetRun:
    """The calls of a fleet under one policy. Used by one thread."""

    def __init__(self, scenario: OutageScenario, policy: SimulatedPolicy, seed: int) -> None:
        fleet = scenario.clients
        self._scenario = scenario
        self._policy = policy
        self._random = np.random.default_rng(seed)
        self._service = ServiceModel(scenario.service, scenario.outages)
        self._layers = [
            LayerState(
                policy,
                fleet.count,
                fleet.processes,
                retry_after=scenario.service.retry_after,
                has_breaker=depth == policy.layers - 1,
            )
            for depth in range(policy.layers)
        ]
        """The outermost first. Only the innermost has a breaker."""
        self._next_at = self._first_calls()
        self._phases = np.full(fleet.count, IDLE, dtype=np.int8)
        self._results = np.zeros(fleet.count, dtype=np.int8)
        """How the running attempt of each client will end."""
        self._waits_in = np.zeros(fleet.count, dtype=np.int8)
        """The layer whose retry each client waits for."""
        self._began = np.zeros(fleet.count)
        self._second = 0
        self._counts = np.zeros((len(COUNTED), ceil(scenario.seconds)), dtype=np.int64)
        self._reasons = np.zeros(len(REASONS), dtype=np.int64)

    def run(self, progress: Progress | None = None) -> LoadCurve:
        """Simulate all of the time.

        Args:
            progress: Called with the simulated seconds that each block took.

        Raises:
            TooManyAttempts: The clients make more attempts than can be simulated.
        """
        rate = self._scenario.steps_per_second
        steps = ceil(self._scenario.seconds * rate)
        for first in range(0, steps, BLOCK_STEPS):
            last = min(first + BLOCK_STEPS, steps)
            # Only clients with an event in this block can have another one in it.
            near = np.flatnonzero(self._next_at < last / rate)
            for number in range(first, last):
                self._second = number // rate
                # A quotient, because a sum of steps would miss whole seconds by a rounding error.
                self._end_attempts(near, (number + 1) / rate)
                self._start_attempts(near, (number + 1) / rate)
            if self._counts[COUNTED.index("attempts")].sum() > MAX_ATTEMPTS:
                raise TooManyAttempts(
                    f"policy {self._policy.name!r} makes more than {MAX_ATTEMPTS:,} attempts; use "
                    "fewer clients, or a policy with waits"
                )
            if progress is not None:
                progress((last - first) / rate)
        reasons = {
            str(reason): int(count)
            for reason, count in zip(REASONS, self._reasons, strict=True)
            if reason is not None and count
        }
        calls, attempts, failed_attempts, succeeded, failed = map(tuple, self._counts.tolist())
        return LoadCurve(calls, attempts, failed_attempts, succeeded, failed, reasons)

    def _due(self, near: Ints, end: float, *, is_running: bool) -> Ints:
        """Return the clients whose next event is before `end`, in order of time."""
        due = near[self._next_at[near] < end]
        due = due[(self._phases[due] == RUNNING) == is_running]
        # Stable, so that clients that start together have one order on every machine.
        in_order: Ints = due[np.argsort(self._next_at[due], kind="stable")]
        return in_order

    def _count(self, what: str, number: int) -> None:
        self._counts[COUNTED.index(what), self._second] += number

    def _first_calls(self) -> Floats:
        """Return when each client starts its first call.

        The times are those of a fleet that has run for long, so that the load is even from the
        start: the distribution of the rest of a pause, by the inverse of its integral.
        """
        fleet = self._scenario.clients
        if fleet.start == "together":
            return np.zeros(fleet.count)
        draws = self._random.random(fleet.count)
        late = 1.5 - np.sqrt(2 * (1 - draws))
        return fleet.every * np.where(draws < 0.5, draws, late)

    # ---- ends of attempts ----

    def _end_attempts(self, near: Ints, end: float) -> None:
        ended = self._due(near, end, is_running=True)
        if not len(ended):
            return
        at, results = self._next_at[ended], self._results[ended]
        is_success = results == SUCCESS
        self._succeed(ended[is_success], at[is_success])
        failed = ~is_success
        self._count("failed_attempts", int(np.count_nonzero(failed)))
        self._fail(ended[failed], at[failed], results[failed], len(self._layers) - 1)

    def _succeed(self, clients: Ints, at: Floats) -> None:
        if not len(clients):
            return
        for layer in self._layers:
            layer.succeed(clients, at)
        self._count("succeeded", len(clients))
        self._end_calls(clients, at)

    def _fail(
        self, clients: Ints, at: Floats, results: Codes, depth: int, *, is_spent: bool = False
    ) -> None:
        """Let the layers decide about failures, from `depth` to the outermost."""
        reasons: Codes = np.full(len(clients), BREAKER_OPEN, dtype=np.int8)
        while len(clients) and depth >= 0:
            draws = self._random.random(len(clients))
            codes, waits = self._layers[depth].fail(clients, at, results, draws, is_spent=is_spent)
            retried = codes == RETRY
            waiting = clients[retried]
            self._next_at[waiting] = at[retried] + waits[retried]
            self._phases[waiting] = WAITING
            self._waits_in[waiting] = depth
            gave_up = ~retried
            clients, at, results = clients[gave_up], at[gave_up], results[gave_up]
            # Where an outer layer does not retry, the reason is that of the inner one.
            reasons = np.where(codes == NESTED, reasons, codes)[gave_up]
            # A layer of one attempt retries nothing, so its errors are not spent.
            is_spent = is_spent or self._policy.max_attempts > 1
            depth -= 1
        self._give_up(clients, at, reasons)

    def _give_up(self, clients: Ints, at: Floats, reasons: Codes) -> None:
        if len(clients):
            self._count("failed", len(clients))
            self._reasons += np.bincount(reasons, minlength=len(REASONS))
            self._end_calls(clients, at)

    def _end_calls(self, clients: Ints, at: Floats) -> None:
        """Let each client wait for the time of its next call."""
        fleet = self._scenario.clients
        if fleet.start == "together":
            next_at = (np.floor(at / fleet.every) + 1) * fleet.every
        else:
            pauses = fleet.every * (0.5 + self._random.random(len(clients)))
            next_at = np.maximum(at, self._began[clients] + pauses)
        self._next_at[clients] = next_at
        self._phases[clients] = IDLE

    # ---- starts of attempts ----

    def _start_attempts(self, near: Ints, end: float) -> None:
        due = self._due(near, end, is_running=False)
        if not len(due):
            return
        at = self._next_at[due]
        is_new = self._phases[due] == IDLE
        new = due[is_new]
        self._began[new] = at[is_new]
        self._count("calls", len(new))
        innermost = len(self._layers) - 1
        for depth, layer in enumerate(self._layers):
            # A layer starts anew with each attempt of the layer around it.
            anew = is_new | (self._waits_in[due] < depth)
            layer.start_run(due[anew], at[anew])
        layer = self._layers[innermost]
        is_retry = ~is_new & (self._waits_in[due] == innermost)
        allowed = np.ones(len(due), dtype=bool)
        for is_kind in (is_retry, ~is_retry):
            allowed[is_kind] = layer.may_start(
                due[is_kind], at[is_kind], is_retry=is_kind is is_retry
            )
        self._refuse(due[~allowed], at[~allowed], is_retry[~allowed])
        self._send(due[allowed], at[allowed])

    def _refuse(self, clients: Ints, at: Floats, is_retry: Flags) -> None:
        """End attempts whose breaker is open. Outer layers may retry the error of a retry."""
        if not len(clients):
            return
        retries, others = clients[is_retry], clients[~is_retry]
        outer = len(self._layers) - 2
        self._fail(retries, at[is_retry], self._results[retries], outer, is_spent=True)
        # `BreakerOpen`, the error of a first attempt, is final for every layer.
        reasons = np.full(len(others), BREAKER_OPEN, dtype=np.int8)
        self._give_up(others, at[~is_retry], reasons)

    def _send(self, clients: Ints, at: Floats) -> None:
        """Send one request of each client. Its end is the next event of the client."""
        if not len(clients):
            return
        draws = self._random.random((2, len(clients)))
        responses = self._service.respond(at, draws[0], draws[1])
        ends = at + self._scenario.clients.attempt_timeout
        if self._policy.fits_waits:
            for layer in self._layers:
                if layer.ends is not None:
                    ends = np.minimum(ends, layer.ends[clients])
        is_late = responses.at > ends
        self._next_at[clients] = np.where(is_late, ends, responses.at)
        self._results[clients] = np.where(is_late, TIMEOUT, responses.results)
        self._phases[clients] = RUNNING
        self._count("attempts", len(clients))
