"""The simulation decides as the retry loop does: the same waits, reasons, budgets and breakers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.breaker import Breaker
from redrive.core.budget import UNLIMITED, Budget
from redrive.core.fault import MAX_WAIT_SECONDS, Fault, decide
from redrive.core.policy import RetryPolicy
from redrive.engine.nesting import GIVE_UPS, outcome
from redrive.engine.run import RetryRun, start_run
from redrive.engine.settings import RetrySettings
from redrive.errors import BreakerOpen
from redrive.simulation.policies import SimulatedPolicy

np = pytest.importorskip("numpy", reason="the extra `simulate` is missing")

from redrive.simulation.layer_state import REASONS, RETRY, LayerState, decide_all  # noqa: E402
from redrive.simulation.service import ERROR, TIMEOUT  # noqa: E402

# Multiples of 1/64, so that sums of times are exact and both sides compare the same numbers.
EXACT = st.integers(0, 640).map(lambda number: number / 64)
DRAWS = st.integers(0, 63).map(lambda number: number / 64)


@given(
    after=st.none() | EXACT | st.just(700.0),
    max_attempts=st.integers(1, 5),
    calls=st.lists(
        st.tuples(
            st.integers(1, 6),
            EXACT | st.sampled_from([math.nan, -1.0, math.inf, 2 * MAX_WAIT_SECONDS]),
            st.just(math.inf) | EXACT | st.just(-1.0),
        ),
        min_size=1,
        max_size=20,
    ),
)
@pytest.mark.req("Z-1")
def test_decisions_about_many_calls_equal_those_about_each(
    after: float | None, max_attempts: int, calls: list[tuple[int, float, float]]
) -> None:
    fault = Fault("transient", after=after)
    attempts, waits, remaining = (np.array(column) for column in zip(*calls, strict=True))
    codes, decided = decide_all(fault, attempts, max_attempts, waits.astype(float), remaining.astype(float))
    for place, (attempt, wait, left) in enumerate(calls):
        reason, expected = decide(fault, attempt, max_attempts, True, wait, left)
        assert REASONS[codes[place]] == reason
        if reason is None:
            assert decided[place] == expected


@dataclass
class SteppedClock:
    """A clock that the test sets."""

    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=timezone.utc)

    def sleep(self, seconds: float, /) -> None:
        raise AssertionError("a simulated call does not sleep")

    async def asleep(self, seconds: float, /) -> None:
        raise AssertionError("a simulated call does not sleep")


@dataclass
class BothLayers:
    """One process with some clients: the real retry runs, and the simulated layer beside them."""

    policy: RetryPolicy
    budget: dict[str, float] | None
    breaker: dict[str, float] | None
    clients: int = 4
    clock: SteppedClock = field(default_factory=SteppedClock)
    draw: float = 0.0

    def __post_init__(self) -> None:
        self.settings = RetrySettings(
            policy=self.policy,
            backoff=lambda attempt, _draw: self.policy.wait(attempt, self.draw),
            budget=UNLIMITED if self.budget is None else Budget(**self.budget),
            breaker=None if self.breaker is None else Breaker(**self.breaker),  # type: ignore[arg-type]
            attempt_timeout=None,
            operation="call",
        )
        policy = SimulatedPolicy(
            "simulated",
            max_attempts=self.policy.max_attempts,
            backoff=self.policy.wait,
            timeout=self.policy.timeout,
            budget=self.budget,
            breaker=self.breaker,
        )
        self.layer = LayerState(policy, self.clients, 1)
        self.runs: dict[int, RetryRun] = {}

    def step(self, client: int, seconds: float, *, is_success: bool, draw: float) -> None:
        """Start a call of the client, or end its attempt. Both sides must do the same."""
        self.clock.seconds += seconds
        self.draw = draw
        run, who = self.runs.get(client), np.array([client])
        if run is None:
            self._start(client)
        elif is_success:
            run.record_success()
            self.layer.succeed(who, self._now())
            del self.runs[client]
        else:
            self._fail(client, run)

    def _start(self, client: int) -> None:
        who = np.array([client])
        self.layer.start_run(who, self._now())
        allowed = self.layer.may_start(who, self._now(), is_retry=False)[0]
        timeout = math.inf if self.policy.timeout is None else self.policy.timeout
        try:
            self.runs[client] = start_run(self.settings, self.clock, timeout, None, None)
        except BreakerOpen:
            assert not allowed
        else:
            assert allowed

    def _fail(self, client: int, run: RetryRun) -> None:
        who, error = np.array([client]), ConnectionResetError()
        wait = run.record_failure(error, GIVE_UPS.count)
        codes, waits = self.layer.fail(who, self._now(), np.array([ERROR], dtype=np.int8), np.array([self.draw]), is_spent=False)
        if wait is None:
            ended = outcome(error)
            assert REASONS[codes[0]] == ("attempts" if ended is None else ended.reason)
            del self.runs[client]
            return
        assert codes[0] == RETRY
        assert waits[0] == wait
        self.clock.seconds += wait
        allowed = self.layer.may_start(who, self._now(), is_retry=True)[0]
        assert allowed == run.may_continue(error)
        if not allowed:
            del self.runs[client]

    def _now(self) -> np.ndarray:  # type: ignore[name-defined]
        return np.array([self.clock.seconds])


POLICIES = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 5),
    backoff_base=EXACT,
    backoff_max=EXACT,
    jitter=EXACT,
    timeout=st.none() | EXACT.filter(bool),
)
BUDGETS = st.none() | st.fixed_dictionaries({"capacity": st.integers(0, 60), "floor": st.sampled_from([0, 0.5, 1, 4])})
BREAKERS = st.none() | st.fixed_dictionaries(
    {
        "min_calls": st.integers(1, 6),
        "open_for": st.sampled_from([0.5, 2.0, 10.0]),
        "failure_rate": st.sampled_from([0.3, 0.5, 1.0]),
    }
)
STEPS = st.lists(st.tuples(st.integers(0, 3), EXACT, st.booleans(), DRAWS), max_size=60)


@settings(deadline=None)
@given(policy=POLICIES, budget=BUDGETS, breaker=BREAKERS, steps=STEPS)
@pytest.mark.req("Z-1")
def test_simulated_layers_decide_as_the_retry_loop_does(
    policy: RetryPolicy,
    budget: dict[str, float] | None,
    breaker: dict[str, float] | None,
    steps: list[tuple[int, float, bool, float]],
) -> None:
    both = BothLayers(policy, budget, breaker)
    for client, seconds, is_success, draw in steps:
        both.step(client, seconds, is_success=is_success, draw=draw)


@pytest.mark.parametrize("is_final", [True, False])
def test_outer_layers_retry_an_inner_give_up_only_if_nesting_allows_it(is_final: bool) -> None:
    policy = SimulatedPolicy("nested", nested_is_final=is_final)
    layer = LayerState(policy, 1, 1)
    codes, _ = layer.fail(np.array([0]), np.array([1.0]), np.array([TIMEOUT], dtype=np.int8), np.array([0.5]), is_spent=True)
    assert REASONS[codes[0]] == ("nested" if is_final else None)
