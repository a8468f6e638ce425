"""A simulated fleet: its calls balance, and its policies do what they say."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.simulation.figures import OutageFigures, summarise
from redrive.simulation.scenario import OutageScenario, scenario_from_mapping

np = pytest.importorskip("numpy", reason="the extra `simulate` is missing")

from redrive.simulation import fleet  # noqa: E402
from redrive.simulation.fleet import FleetRun, TooManyAttempts  # noqa: E402


def scenario(policy: dict[str, Any], **changes: Any) -> OutageScenario:
    content = {
        "minutes": 1,
        "service": {"capacity": 150, "latency": 0.1, "error_latency": 0.1},
        "clients": {"count": 500, "processes": 5, "every": 5, "attempt_timeout": 2},
        "outage": [{"at": 15, "lasts": 15}],
        "policy": [policy],
    }
    return scenario_from_mapping(content | changes)


def figures(policy: dict[str, Any], *, seed: int = 1, **changes: Any) -> OutageFigures:
    description = scenario(policy, **changes)
    return summarise(description, FleetRun(description, description.policies[0], seed).run())


def test_calls_end_once_and_attempts_end_once() -> None:
    description = scenario({"budget": True, "breaker": True, "layers": 2, "nested": "allow"})
    curve = FleetRun(description, description.policies[0], 1).run()
    running_calls = sum(curve.calls) - sum(curve.succeeded) - sum(curve.failed)
    running_attempts = sum(curve.attempts) - sum(curve.succeeded) - sum(curve.failed_attempts)
    assert 0 <= running_attempts <= running_calls <= 500
    assert sum(curve.reasons.values()) == sum(curve.failed)


def test_the_load_is_even_before_the_outage() -> None:
    description = scenario({}, minutes=0.3, clients={"count": 50_000, "every": 10}, service={"capacity": 9_000})
    curve = FleetRun(description, description.policies[0], 1).run()
    assert all(abs(count - 5_000) < 400 for count in curve.attempts[:15])


def test_a_seed_gives_the_same_run() -> None:
    runs = [figures({}, seed=seed, minutes=0.5) for seed in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]


def test_three_attempts_triple_the_load_of_an_outage() -> None:
    assert figures({"library": "none"}).amplification == pytest.approx(1, abs=0.02)
    assert figures({}).amplification == pytest.approx(3, abs=0.15)


def test_a_budget_limits_the_retries_of_an_outage() -> None:
    limited = figures({"budget": {"capacity": 140, "floor": 0}})
    # 10 retries in each of the 5 processes, and those that successes paid for.
    assert limited.amplification < 1.1
    assert limited.reasons["budget"] > 0.9 * limited.failed_calls


def test_a_breaker_stops_the_load_of_an_outage() -> None:
    stopped = figures({"breaker": True})
    assert stopped.amplification < 0.5
    assert stopped.reasons["breaker_open"] > 0.8 * stopped.failed_calls


def test_layers_multiply_only_if_they_are_allowed_to() -> None:
    assert figures({"layers": 2, "nested": "allow", "backoff_base": 0, "jitter": 0.1}).amplification == pytest.approx(9, abs=0.5)
    assert figures({"layers": 2}).amplification == pytest.approx(3, abs=0.15)


def test_a_deadline_ends_calls_whose_next_wait_does_not_fit() -> None:
    bounded = figures({"max_attempts": 50, "timeout": 1})
    assert bounded.reasons["timeout"] == bounded.failed_calls
    assert bounded.amplification < 4


def test_attempts_without_a_response_time_out() -> None:
    hanging = figures({"library": "none"}, outage=[{"at": 15, "lasts": 15, "kind": "hang"}])
    assert hanging.failed_calls > 1_000
    assert hanging.recovered_after is not None
    assert hanging.recovered_after <= 2


def test_a_retry_after_delays_the_retries_of_rejected_requests() -> None:
    service = {"capacity": 60, "latency": 0.1, "queue": 0.1, "error_latency": 0.1}
    eager = figures({"max_attempts": 4}, minutes=0.5, service=service, outage=[])
    patient = figures({"max_attempts": 4}, minutes=0.5, service=service | {"retry_after": 10}, outage=[])
    assert patient.peak_load < eager.peak_load


def test_clients_that_start_together_call_in_the_same_second() -> None:
    clients = {"count": 500, "every": 20, "start": "together"}
    description = scenario({"library": "none"}, clients=clients, outage=[])
    curve = FleetRun(description, description.policies[0], 1).run()
    assert {second: count for second, count in enumerate(curve.calls) if count} == {0: 500, 20: 500, 40: 500}


def test_a_policy_with_too_many_attempts_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "MAX_ATTEMPTS", 1_000)
    with pytest.raises(TooManyAttempts, match=r"policy 'tenacity' makes more than 1,000 attempts; use fewer clients"):
        figures({"library": "tenacity"})


@pytest.mark.req("Z-1")
def test_a_million_clients_are_simulated() -> None:
    clients = {"count": 1_000_000, "processes": 2_000, "every": 60}
    million = figures(
        {"budget": True}, minutes=0.05, clients=clients, service={"capacity": 25_000}, outage=[{"at": 1, "lasts": 1}]
    )
    assert million.calls == pytest.approx(50_000, rel=0.02)
    assert million.amplification > 1.5
