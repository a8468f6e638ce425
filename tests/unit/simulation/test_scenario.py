"""Scenarios: what a TOML file may contain, and errors that name the table, the key and the fix."""

from __future__ import annotations

import math
from typing import Any

import pytest

from redrive.core.policy import SERVICE
from redrive.simulation.scenario import MAX_CLIENTS, scenario_from_mapping


def content(**changes: Any) -> dict[str, Any]:
    return {
        "service": {"capacity": 100},
        "clients": {"count": 10, "every": 1},
        "outage": [{"at": 10, "lasts": 5}],
        "policy": [{}],
        **changes,
    }


def test_a_policy_without_keys_is_the_default_of_retry() -> None:
    (policy,) = scenario_from_mapping(content()).policies
    assert (policy.name, policy.max_attempts, policy.timeout) == ("redrive", SERVICE.max_attempts, SERVICE.timeout)
    assert [policy.backoff(n, 0.5) for n in range(1, 9)] == [SERVICE.wait(n, 0.5) for n in range(1, 9)]
    assert (policy.budget, policy.breaker, policy.layers, policy.nested_is_final) == (None, None, 1, True)


def test_changed_keys_keep_the_other_defaults_of_retry() -> None:
    (policy,) = scenario_from_mapping(
        content(policy=[{"max_in_call_retries": 4, "budget": {"capacity": 7}, "breaker": True}])
    ).policies
    assert (policy.max_attempts, policy.backoff(1, 0.0)) == (5, SERVICE.backoff_base)
    assert (policy.budget, policy.breaker) == ({"capacity": 7}, {})


def test_clients_have_a_process_each_unless_they_share_some() -> None:
    assert scenario_from_mapping(content()).clients.processes == 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"servise": {}}, r"the scenario: unknown key 'servise' \(did you mean 'service'\?\); known: title, "),
        ({"service": {"capcity": 1}}, r"\[service\]: unknown key 'capcity' \(did you mean 'capacity'\?\)"),
        ({"service": {}}, r"\[service\]: capacity is missing"),
        ({"service": {"capacity": 0}}, r"\[service\]: capacity must be above 0: 0"),
        ({"service": {"capacity": "many"}}, r"\[service\]: capacity must be a number, not str: 'many'"),
        ({"service": {"capacity": 1, "latency": 0.0001}}, r"\[service\]: latency must be at least 0.005 s: 0.0001"),
        ({"clients": {"count": MAX_CLIENTS + 1, "every": 1}}, r"\[clients\]: count must be at most 1,000,000: 1000001"),
        ({"clients": {"count": 10, "every": 0.01}}, r"\[clients\]: every must be at least 0.1 s"),
        ({"clients": {"count": 10, "every": 1, "processes": 11}}, r"\[clients\]: processes must be at most count: 11"),
        ({"clients": {"count": 10, "every": 1, "start": "now"}}, r"\[clients\]: start must be spread or together: 'now'"),
        ({"outage": [{"at": 10}]}, r"\[\[outage\]\] 1: lasts is missing"),
        ({"outage": [{"at": 10, "lasts": 5, "kind": "slow"}]}, r"\[\[outage\]\] 1: capacity is the part"),
        ({"outage": [{"at": 1000, "lasts": 5}]}, r"\[\[outage\]\] 1 begins at 1000 s, after the end of the simulation at 300 s"),
        ({"outage": {"at": 10, "lasts": 5}}, r"outage must be tables, each under \[\[outage\]\]"),
        ({"policy": []}, r"policy is empty; add \[\[policy\]\] tables"),
        ({"policy": [{}, {}]}, r"two policies have the name 'redrive'"),
        ({"policy": [{"jiter": 1}]}, r"\[\[policy\]\] 1 \(redrive\): unknown key 'jiter' \(did you mean 'jitter'\?\)"),
        ({"policy": [{"library": "stamina", "jitter": 1}]}, r"library = 'stamina' stands for its defaults; remove jitter"),
        ({"policy": [{"library": "celery"}]}, r"library must be one of redrive, stamina, tenacity, none: 'celery'"),
        ({"policy": [{"layers": 6}]}, r"layers must be at most 5: 6"),
        ({"policy": [{"nested": "maybe"}]}, r"nested must be 'final' or 'allow', not 'maybe'"),
        ({"policy": [{"budget": {"size": 1}}]}, r"\(redrive\): budget: got an unexpected keyword argument 'size'"),
        ({"policy": [{"breaker": 5}]}, r"breaker must be true, false or a table of its options, not 5"),
        ({"policy": [{"backoff": {"fixed": 1}, "jitter": 1}]}, r"backoff sets the waits; remove jitter"),
        ({"policy": [{"backoff": list(range(100))}]}, r"the backoff grows for more than 64 attempts; set a cap"),
        ({"minutes": 0}, r"minutes must be above 0"),
        ({"minutes": 1e6}, r"minutes must be at most 1,440"),
        ({"seed": -1}, r"seed must be at least 0: -1"),
        ({"title": ""}, r"title must be text"),
    ],
)
def test_an_invalid_scenario_names_the_table_the_key_and_the_fix(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        scenario_from_mapping(content(**changes))


@pytest.mark.parametrize("key", ["service", "clients", "policy"])
def test_a_missing_table_is_named(key: str) -> None:
    scenario = content()
    del scenario[key]
    with pytest.raises(ValueError, match=rf"{key} is missing; add"):
        scenario_from_mapping(scenario)


def test_processes_with_state_are_bounded() -> None:
    clients = {"count": 200_000, "every": 60}
    scenario_from_mapping(content(clients=clients))
    with pytest.raises(ValueError, match=r"200,000 processes with a budget or a breaker; set processes to at most 100,000"):
        scenario_from_mapping(content(clients=clients, policy=[{"budget": True}]))


def test_tenacity_never_gives_up() -> None:
    (policy,) = scenario_from_mapping(content(policy=[{"library": "tenacity", "layers": 2}])).policies
    assert (policy.name, policy.max_attempts, policy.layers) == ("tenacity", math.inf, 2)
