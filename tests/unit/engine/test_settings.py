"""Settings: every invalid option is rejected when it is passed."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from redrive import Breaker, Budget, Key, RetryPolicy, backoff, retry
from redrive.core.budget import UNLIMITED

pytestmark = pytest.mark.req("C-11")


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"max_attempt": 3}, TypeError, "retry has no option 'max_attempt'; use one of: max_attempts, backoff_base, .*operation"),
        ({"attempts": 3}, TypeError, "no option 'attempts'"),
        ({"policy": RetryPolicy()}, TypeError, "no option 'policy'"),
        ({"max_attempts": 0}, ValueError, "max_attempts must be at least 1: 0"),
        ({"max_attempts": 2.5}, TypeError, "max_attempts must be a whole number"),
        ({"max_attempts": True}, TypeError, "max_attempts must be a whole number"),
        ({"max_attempts": "3"}, TypeError, "max_attempts must be a whole number"),
        ({"max_attempts": None}, TypeError, "max_attempts must be a whole number"),
        ({"timeout": 0}, ValueError, "timeout must be above 0"),
        ({"timeout": -1}, ValueError, "timeout must not be negative"),
        ({"timeout": "5"}, TypeError, "timeout must be"),
        ({"jitter": math.nan}, ValueError, "jitter must be a finite number"),
        ({"backoff_base": -1}, ValueError, "backoff_base must not be negative"),
        ({"backoff_max": math.inf}, ValueError, "backoff_max must be a finite number"),
        ({"reject": "bad"}, TypeError, "reject= must be a function of the result"),
        ({"backoff": 5}, TypeError, r"backoff= must be one of redrive.backoff, or a function of \(attempt, draw\), not 5"),
        ({"budget": 5}, TypeError, "budget= must be a Budget or the name of one, not int: 5"),
        ({"budget": ""}, TypeError, "must be text"),
        ({"breaker": 0.5}, TypeError, "breaker= must be a Breaker or the name of one, not float: 0.5"),
        ({"attempt_timeout": 0}, ValueError, "attempt_timeout must be above 0"),
        ({"attempt_timeout": -1}, ValueError, "attempt_timeout must not be negative"),
        ({"attempt_timeout": math.inf}, ValueError, "attempt_timeout must be a finite number"),
        ({"attempt_timeout": "10s"}, TypeError, "attempt_timeout must be seconds or a timedelta"),
        ({"attempt_timeout": True}, TypeError, "attempt_timeout must be seconds or a timedelta"),
        ({"idempotent": "yes"}, TypeError, "idempotent= must be True or False, not 'yes'"),
        ({"idempotent": None}, TypeError, "idempotent= must be True or False"),
        ({"nested": "multiply"}, ValueError, "nested= must be 'final' or 'allow', not 'multiply'"),
        ({"nested": True}, ValueError, "nested= must be 'final' or 'allow'"),
        ({"nested": ["final"]}, ValueError, "nested= must be 'final' or 'allow'"),
        ({"key": 5}, TypeError, "key= must be a Key, a template such as 'shop:.*', or a function, not 5"),
        ({"fields": ["a"]}, TypeError, "fields= must be a mapping of names"),
        ({"fields": {1: "a"}}, TypeError, "fields= must be a mapping of names"),
        ({"operation": ""}, TypeError, "operation= must be the name of the call, not ''"),
        ({"operation": 5}, TypeError, "operation= must be the name of the call, not 5"),
    ],
    ids=str,
)
def test_an_invalid_option_is_rejected(options: dict[str, Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        retry(**options)
    with pytest.raises(kind, match=says):
        retry().using(**options)


@pytest.mark.parametrize("template", ["a:{missing}:c:d:v1", "a:b:c", "a:{0}:c:d:v1", "a:{x!r}:c:d:v1"])
def test_an_invalid_key_template_is_rejected_at_decoration(template: str) -> None:
    with pytest.raises(ValueError, match="key template"):
        retry(key=template)(lambda x: x)


def test_durations_may_be_timedeltas() -> None:
    assert retry(attempt_timeout=timedelta(milliseconds=1500)).settings.attempt_timeout == 1.5
    assert retry(attempt_timeout=None).settings.attempt_timeout is None


def test_budgets_and_breakers_can_be_passed_by_name() -> None:
    assert retry(budget="test.settings").settings.budget is Budget.named("test.settings")
    assert retry(breaker="test.settings").settings.breaker is Breaker.named("test.settings")
    assert retry(budget=None).settings.budget is UNLIMITED


def test_none_means_the_default() -> None:
    names = ("on", "reject", "backoff", "budget", "breaker", "key", "fields", "operation")
    nothing = retry(None, **dict.fromkeys(names)).settings  # type: ignore[arg-type]
    plain = retry().settings
    for name in ("reject", "backoff", "budget", "breaker", "key", "fields", "operation", "classify"):
        assert getattr(nothing, name) == getattr(plain, name)


def test_fields_are_copied_and_immutable() -> None:
    given = {"tenant": "acme"}
    settings = retry(fields=given).settings
    given["tenant"] = "changed"
    assert settings.fields["tenant"] == "acme"
    with pytest.raises(TypeError):
        settings.fields["tenant"] = "changed"  # type: ignore[index]


def test_settings_are_immutable() -> None:
    with pytest.raises(AttributeError):
        retry().settings.operation = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "precomputed"),
    [
        ({}, 3),
        ({"max_attempts": 50}, 10),
        ({"idempotent": False}, 0),
        ({"backoff": backoff.fixed(1)}, 0),
        ({"breaker": Breaker()}, 0),
    ],
    ids=str,
)
def test_waits_without_a_decision_are_precomputed(options: dict[str, Any], precomputed: int) -> None:
    settings = retry(**options).settings
    assert settings.precomputed == precomputed
    assert [settings.policy.wait(attempt, 0.0) for attempt in range(1, precomputed)] == list(settings.waits[1:])


def test_a_renamed_copy_shares_all_other_settings() -> None:
    settings = retry(max_attempts=4, key=Key("a", "b", "c", "d"), fields={"x": 1}, nested="allow").settings
    named = settings.named("crm", "somebody")
    assert vars(named).keys() == vars(settings).keys()
    for name in vars(settings):
        if name not in ("operation", "origins"):
            assert getattr(named, name) is getattr(settings, name)
    assert named.operation == "crm"
    assert named.origins[-1] == "somebody"


@pytest.mark.parametrize(
    ("options", "publishes"),
    [({}, True), ({"attempt_timeout": None}, False), ({"attempt_timeout": None, "timeout": 5}, True)],
    ids=str,
)
def test_scopes_are_published_only_if_they_are_needed(options: dict[str, Any], publishes: bool) -> None:
    assert retry(**options).settings.publishes_scope is publishes


def test_a_backoff_can_be_any_function() -> None:
    waits: list[Callable[[int, float], float]] = [backoff.steps(1, 2), lambda attempt, draw: 0.0, RetryPolicy().wait]
    for wait in waits:
        assert retry(backoff=wait).settings.backoff is wait or retry(backoff=wait).settings.backoff == wait
