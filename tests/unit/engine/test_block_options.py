"""Blocks with options of their own: `attempts(...)` remembers the checked options."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import Budget, RetryPolicy, attempts
from redrive.engine import retry as module
from redrive.engine.settings import RetrySettings

BUDGET = Budget()


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAYERS", {})


def settings_of(policy: RetryPolicy | None = None, **options: Any) -> RetrySettings:
    settings = attempts(policy, **options)._settings
    assert settings is not None
    return settings


def make_options() -> dict[str, Any]:
    return {"max_attempts": 5, "on": (OSError, ValueError), "budget": BUDGET, "operation": "crm"}


def test_equal_options_are_checked_once() -> None:
    first, second = settings_of(**make_options()), settings_of(**make_options())
    assert len(module._LAYERS) == 1
    assert first.error_rules is second.error_rules
    assert (second.max_attempts, second.budget, second.operation) == (5, BUDGET, "crm")
    assert first is not second  # outcome marks tell blocks apart by their settings


@pytest.mark.parametrize(
    ("accepted", "rejected"),
    [({"max_attempts": 1}, {"max_attempts": True}), ({"idempotent": True}, {"idempotent": 1})],
    ids=str,
)
def test_a_value_of_another_type_is_checked_by_itself(accepted: dict[str, Any], rejected: dict[str, Any]) -> None:
    settings_of(**accepted)
    with pytest.raises((TypeError, ValueError)):
        attempts(**rejected)


def test_other_options_get_other_settings() -> None:
    class Patient(RetryPolicy):
        def wait(self, attempt: int, draw: float, /) -> float:
            return 60.0

    assert settings_of(max_attempts=4).max_attempts == 4
    assert settings_of(attempt_timeout=4).attempt_timeout == 4
    assert settings_of(RetryPolicy()).waits[1] == 1.0
    assert settings_of(RetryPolicy(backoff_base=2)).waits[1] == 2.0
    assert settings_of(Patient()).waits[1] == 60.0  # equal numbers, but another method
    assert settings_of(on=(OSError,)).error_rules.rules == (OSError,)
    assert settings_of(on=(OSError, ValueError)).error_rules.rules == (OSError, ValueError)


def test_mutable_options_are_read_each_time() -> None:
    fields = {"shop": 1}
    assert settings_of(fields=fields).fields == {"shop": 1}
    fields["shop"] = 2
    assert settings_of(fields=fields).fields == {"shop": 2}
    assert module._LAYERS == {}


def test_equal_policies_share_an_entry() -> None:
    first, second = settings_of(RetryPolicy(max_attempts=4)), settings_of(RetryPolicy(max_attempts=4))
    assert first.policy is second.policy


def test_functions_are_not_kept() -> None:
    settings_of(on=lambda error: True)
    settings_of(on=(OSError, lambda error: True))
    settings_of(backoff=lambda attempt, draw: 1.0)
    assert module._LAYERS == {}


def test_the_cache_is_bounded() -> None:
    for number in range(2 * module.MAX_CACHED_LAYERS):
        assert settings_of(backoff_base=number / 8).policy.backoff_base == number / 8
        assert len(module._LAYERS) <= module.MAX_CACHED_LAYERS
