"""The policies of other libraries are the defaults of the installed versions."""

from __future__ import annotations

import inspect
import math
import random

import pytest
import stamina
import tenacity
from stamina import _core

from redrive import backoff
from redrive.core.policy import SERVICE
from redrive.simulation.policies import SimulatedPolicy, stamina_defaults, tenacity_defaults


@pytest.mark.req("Z-1")
def test_the_policy_of_stamina_is_its_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = stamina_defaults()
    defaults = {name: parameter.default for name, parameter in inspect.signature(stamina.retry).parameters.items()}
    assert (policy.max_attempts, policy.timeout) == (defaults["attempts"], defaults["timeout"])
    for attempt in range(1, 30):
        for draw in (0.0, 0.25, 0.5, 0.999):
            monkeypatch.setattr(random, "uniform", lambda low, high, draw=draw: low + (high - low) * draw)
            theirs = _core._compute_backoff(
                attempt, defaults["wait_max"], defaults["wait_initial"], defaults["wait_exp_base"], defaults["wait_jitter"]
            )
            assert policy.backoff(attempt, draw) == theirs


@pytest.mark.req("Z-1")
def test_the_policy_of_tenacity_is_its_defaults() -> None:
    policy, theirs = tenacity_defaults(), tenacity.Retrying()
    assert theirs.stop is tenacity.stop_never
    assert policy.max_attempts == math.inf
    state = tenacity.RetryCallState(theirs, None, (), {})
    for attempt in (1, 2, 50):
        state.attempt_number = attempt
        assert policy.backoff(attempt, 0.7) == theirs.wait(state) == 0


def test_stamina_stops_after_its_timeout_as_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    clock = [0.0]
    monkeypatch.setattr("tenacity.time.monotonic", lambda: clock[0])
    attempts: list[float] = []

    def fail() -> None:
        clock[0] += 6.0
        attempts.append(clock[0])
        raise ConnectionResetError

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr("tenacity.nap.time.sleep", sleep)
    with pytest.raises(ConnectionResetError):
        stamina.retry(on=ConnectionResetError)(fail)()
    policy, simulated, now, number = stamina_defaults(), [], 0.0, 0
    while True:
        now, number = now + 6.0, number + 1
        simulated.append(now)
        if number >= policy.max_attempts or now >= (policy.timeout or 0):
            break
        now += policy.backoff(number, 1.0)
    assert attempts == pytest.approx(simulated)


@pytest.mark.parametrize(
    ("wait", "distinct"),
    [
        (SERVICE.wait, 6),
        (backoff.fixed(2), 1),
        (backoff.steps(1, 1, 5), 3),
        (backoff.full_jitter(1, cap=8), 4),
        (backoff.powers(2, cap=9), 4),
    ],
)
def test_attempts_with_the_same_wait_are_grouped(wait: backoff.Backoff, distinct: int) -> None:
    assert SimulatedPolicy("policy", backoff=wait).distinct_waits == distinct
