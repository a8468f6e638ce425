"""LayerState: one retry layer of all clients, and what it decides after failures.

The decisions are those of `core`. Backoffs take an array of random numbers. Budgets and breakers
are real objects, one for each process. Only `decide_all` repeats a function of `core` for arrays,
and tests/property/test_simulation.py checks that both agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.breaker import Breaker
from ..core.budget import Budget
from ..core.fault import MAX_RETRY_AFTER_SECONDS, MAX_WAIT_SECONDS, Fault, Reason
from .policies import SimulatedPolicy
from .service import ERROR, REJECTED, TIMEOUT, Codes, Floats

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

REASONS: tuple[Reason | None, ...] = (
    None,
    "attempts",
    "timeout",
    "retry_after",
    "budget",
    "breaker_open",
    "nested",
)
"""Why a layer gave up, by code. Code 0: it retries."""
RETRY, ATTEMPTS, NO_TIME, LONG_RETRY_AFTER, BUDGET, BREAKER_OPEN, NESTED = range(len(REASONS))


def decide_all(
    fault: Fault, attempts: Ints, max_attempts: float, waits: Floats, remaining: Floats
) -> tuple[Codes, Floats]:
    """Decide what follows failed attempts, as `core.fault.decide` does for one.

    Args:
        fault: A retryable fault.
        attempts: Number of each failed attempt, from 1.
        max_attempts: Maximum number of attempts. Infinite: no limit.
        waits: Seconds that the backoff wants to wait.
        remaining: Seconds until the deadline of each call.

    Returns:
        The code of the reason to give up or `RETRY`, and the seconds to wait.
    """
    waits = np.where(waits >= 0, np.minimum(waits, MAX_WAIT_SECONDS), 0.0)  # NaN becomes 0
    codes = np.where(waits >= remaining, NO_TIME, RETRY).astype(np.int8)
    if fault.after is not None:
        longer = fault.after > waits
        is_too_long = (fault.after >= remaining) | (
            np.isinf(remaining) & (fault.after > MAX_RETRY_AFTER_SECONDS)
        )
        codes[longer] = np.where(is_too_long[longer], LONG_RETRY_AFTER, RETRY)
        waits = np.where(longer, fault.after, waits)
    codes[attempts >= max_attempts] = ATTEMPTS
    return codes, waits


class LayerState:
    """One retry layer of all clients. Used by one thread.

    Clients are numbers from 0. Client `n` belongs to process `n % processes`.
    """

    def __init__(
        self,
        policy: SimulatedPolicy,
        clients: int,
        processes: int,
        *,
        retry_after: float | None = None,
        has_breaker: bool = True,
    ) -> None:
        self._policy = policy
        self._processes = processes
        self.attempts: npt.NDArray[np.int32] = np.ones(clients, dtype=np.int32)
        """Number of each client's current attempt."""
        self.ends: Floats | None = None if policy.timeout is None else np.full(clients, np.inf)
        """Deadline of each client's call. None: calls have no deadline."""
        self._budgets: list[Budget] = []
        if policy.budget is not None:
            self._budgets = [Budget(**policy.budget) for _ in range(processes)]
            self._paid = np.zeros(clients)
            self._has_spent = np.zeros(processes, dtype=bool)
        self._breakers: list[Breaker] = []
        if policy.breaker is not None and has_breaker:
            self._breakers = [Breaker(**policy.breaker) for _ in range(processes)]  # type: ignore[arg-type]
            self._is_open = np.zeros(processes, dtype=bool)
        self._faults = {
            ERROR: Fault("transient"),
            REJECTED: Fault("transient", after=retry_after),
            TIMEOUT: Fault("timeout"),
        }

    def start_run(self, clients: Ints, at: Floats) -> None:
        """Start a call of each of these clients: its first attempt, and its deadline."""
        self.attempts[clients] = 1
        if self.ends is not None and self._policy.timeout is not None:
            self.ends[clients] = at + self._policy.timeout

    def fail(
        self, clients: Ints, at: Floats, results: Codes, draws: Floats, *, is_spent: bool
    ) -> tuple[Codes, Floats]:
        """Decide what follows the failures of these clients. They are in order of time.

        Args:
            clients: The clients, each once.
            at: When each attempt ended.
            results: How each ended: `ERROR`, `REJECTED` or `TIMEOUT`.
            draws: A random number for each.
            is_spent: Whether an inner layer has used up its retries on these errors.

        Returns:
            The code of the reason to give up or `RETRY`, and the seconds to wait.
        """
        if self._breakers:
            self._record(clients, at, is_failure=True)
        if is_spent and self._policy.nested_is_final:
            return np.full(len(clients), NESTED, dtype=np.int8), np.zeros(len(clients))
        attempts = self.attempts[clients].astype(np.int64)
        waits = self._backoff(attempts, draws)
        codes, waits = self._decide(clients, at, results, attempts, waits)
        if self._breakers:
            self._check_breakers(clients, at + waits, codes)
        if self._budgets:
            self._spend(clients, at, results, codes)
        self.attempts[clients[codes == RETRY]] += 1
        return codes, waits

    def succeed(self, clients: Ints, at: Floats) -> None:
        """Record the successes of these clients, in order of time."""
        if self._breakers:
            self._record(clients, at, is_failure=False)
        if not self._budgets:
            return
        processes = clients % self._processes
        can_refill = self._has_spent[processes]
        if not can_refill.any():
            return
        budgets, has_spent = self._budgets, self._has_spent
        refilled = clients[can_refill]
        paid = np.where(self.attempts[refilled] > 1, self._paid[refilled], 0.0)
        for process, tokens in zip(processes[can_refill].tolist(), paid.tolist(), strict=True):
            budgets[process].refund(tokens)
            has_spent[process] = budgets[process].below_capacity

    def may_start(self, clients: Ints, at: Floats, *, is_retry: bool) -> Flags:
        """Return which attempts the breakers allow. Refused retries get their tokens back."""
        allowed = np.ones(len(clients), dtype=bool)
        if not self._breakers:
            return allowed
        processes = clients % self._processes
        for place in np.flatnonzero(self._is_open[processes]).tolist():
            process = int(processes[place])
            if self._breakers[process].allow(float(at[place])):
                allowed[place] = False
                if is_retry and self._budgets:
                    self._budgets[process].refund(float(self._paid[clients[place]]))
                    self._has_spent[process] = self._budgets[process].below_capacity
        return allowed

    def _backoff(self, attempts: Ints, draws: Floats) -> Floats:
        """Return the waits. The backoff is called once for each number of an attempt."""
        backoff: Any = self._policy.backoff  # typed for one number
        distinct = self._policy.distinct_waits
        if distinct == 1:
            return np.broadcast_to(np.asarray(backoff(1, draws)), draws.shape)
        waits = np.zeros(len(draws))
        numbers = np.minimum(attempts, distinct)
        for attempt in range(int(numbers.min()), int(numbers.max()) + 1):
            same = numbers == attempt
            waits[same] = backoff(attempt, draws[same])
        return waits

    def _decide(
        self, clients: Ints, at: Floats, results: Codes, attempts: Ints, waits: Floats
    ) -> tuple[Codes, Floats]:
        policy = self._policy
        remaining = np.full(len(at), np.inf) if self.ends is None else self.ends[clients] - at
        is_late = remaining <= 0
        if not policy.fits_waits:  # only a failure after the end of the time ends the call
            remaining = np.where(is_late, 0.0, np.inf)
        codes, decided = decide_all(
            self._faults[ERROR], attempts, policy.max_attempts, waits, remaining
        )
        rejected = self._faults[REJECTED]
        if rejected.after is not None and policy.fits_waits:
            other = results == REJECTED
            codes[other], decided[other] = decide_all(
                rejected, attempts[other], policy.max_attempts, waits[other], remaining[other]
            )
        return codes, decided

    def _record(self, clients: Ints, at: Floats, *, is_failure: bool) -> None:
        breakers, is_open = self._breakers, self._is_open
        processes = (clients % self._processes).tolist()
        for process, now in zip(processes, at.tolist(), strict=True):
            if breakers[process].record(is_failure, now):
                is_open[process] = is_failure

    def _check_breakers(self, clients: Ints, next_at: Floats, codes: Codes) -> None:
        """Give up where the breaker will be open when the wait ends."""
        processes = clients % self._processes
        for place in np.flatnonzero((codes == RETRY) & self._is_open[processes]).tolist():
            if self._breakers[int(processes[place])].closed_for(float(next_at[place])):
                codes[place] = BREAKER_OPEN

    def _spend(self, clients: Ints, at: Floats, results: Codes, codes: Codes) -> None:
        """Pay for each retry from the budget of its process, or give up."""
        retried = np.flatnonzero(codes == RETRY)
        processes = (clients[retried] % self._processes).tolist()
        paid: list[float] = []
        for place, process, now, result in zip(
            retried.tolist(),
            processes,
            at[retried].tolist(),
            results[retried].tolist(),
            strict=True,
        ):
            budget = self._budgets[process]
            tokens = budget.spend(self._faults[result].kind)
            if tokens is None and not budget.allow_by_floor(now):
                codes[place] = BUDGET
            paid.append(tokens or 0.0)
        self._paid[clients[retried]] = paid
        self._has_spent[processes] = True
