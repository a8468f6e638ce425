"""Settings: validation, aliases and environment variables."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from redrive import Budget, RetryPolicy, backoff, retry
from redrive.batch import Settings
from redrive.batch.settings import DEFAULT_SETTINGS, BatchTerms


@pytest.mark.req("B-1")
def test_defaults() -> None:
    assert (DEFAULT_SETTINGS.max_in_call_retries, DEFAULT_SETTINGS.max_per_item_attempts) == (3, 5)
    assert (DEFAULT_SETTINGS.backoff_base, DEFAULT_SETTINGS.backoff_cap, DEFAULT_SETTINGS.enabled) == (2.0, 60.0, True)
    with pytest.raises(FrozenInstanceError):
        DEFAULT_SETTINGS.backoff_cap = 1.0  # type: ignore[misc]
    assert hash(Settings()) == hash(Settings())


@pytest.mark.req("B-1")
def test_aliases_of_settings() -> None:
    section = {"max_in_call_retries": 2, "max_per_tile_attempts": 7, "backoff_base_s": 3, "backoff_cap_s": 10.5}
    assert Settings.from_mapping(section) == Settings(2, 7, 3.0, 10.5)
    assert Settings.from_mapping({"max_attempts": 4, "item_attempts": 5, "backoff_max": 60}) == Settings()
    assert Settings.from_mapping({"disable_retry_decorator": True}) == Settings(enabled=False)
    assert Settings.from_mapping(None) is None
    environ = {"C11_MAX_IN_CALL_RETRIES": "1", "C11_MAX_PER_TILE_ATTEMPTS": "9", "C11_BACKOFF_CAP_S": "5", "OTHER": "x"}
    assert Settings.from_env("C11", environ) == Settings(1, 9, 2.0, 5.0)
    assert Settings.from_env("C11_", {"C11_DISABLE_RETRY_DECORATOR": "yes"}) == Settings(enabled=False)
    assert Settings.from_env("C11", {"C11_ENABLED": "off"}) == Settings(enabled=False)
    assert Settings.from_env("C12", environ) is None


@pytest.mark.parametrize(
    ("section", "error", "message"),
    [
        ({"max_retries": 1}, TypeError, "unknown key 'max_retries' in batch settings; use one of: max_in_call_retries,"),
        ({"max_attempts": 4, "max_in_call_retries": 3}, TypeError, "both set 'max_in_call_retries'"),
        ({"max_in_call_retries": -1}, ValueError, "max_in_call_retries must be at least 0"),
        ({"max_per_item_attempts": 0}, ValueError, "max_per_item_attempts must be at least 1"),
        ({"max_per_item_attempts": True}, TypeError, "must be a whole number"),
        ({"backoff_cap": 0}, ValueError, "backoff_cap must be above 0"),
        ({"backoff_base": "2"}, TypeError, "backoff_base must be a number"),
        ({"disable_retry_decorator": 1}, TypeError, "disable_retry_decorator is true or false"),
        ({"enabled": "no"}, TypeError, "enabled is True or False"),
        ([1], TypeError, "batch settings must be a table of"),
    ],
)
def test_invalid_settings_are_rejected(section: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Settings.from_mapping(section)


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ({"T_MAX_IN_CALL_RETRIES": "three"}, "T_MAX_IN_CALL_RETRIES must be a whole number, not 'three'"),
        ({"T_BACKOFF_CAP": "long"}, "T_BACKOFF_CAP must be a number of seconds, not 'long'"),
        ({"T_ENABLED": "maybe"}, "T_ENABLED must be true or false, not 'maybe'"),
    ],
)
def test_an_invalid_variable_is_named(variable: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.from_env("T", variable)
    with pytest.raises(TypeError, match="the prefix"):
        Settings.from_env("_", variable)


def test_terms_from_settings_and_policies() -> None:
    terms = BatchTerms.combine(DEFAULT_SETTINGS, None, 5)
    assert [terms.backoff(n, 0.5) for n in (1, 2, 3, 6, 100_000)] == [2, 4, 8, 60, 60]
    policy = RetryPolicy(max_attempts=4, backoff_base=2, backoff_max=60, jitter=0, timeout=90)
    assert [BatchTerms.combine(DEFAULT_SETTINGS, policy, 5).backoff(n, 0.5) for n in (1, 2, 3, 6)] == [2, 4, 8, 60]
    terms_of_policy = BatchTerms.combine(DEFAULT_SETTINGS, policy, 5)
    assert (terms_of_policy.retries, terms_of_policy.timeout) == (3, 90)
    assert BatchTerms.combine(DEFAULT_SETTINGS, RetryPolicy.disabled(), 5).retries == 0
    steps = retry(max_attempts=3, backoff=backoff.steps(5, 50, jitter=0))
    assert [BatchTerms.combine(DEFAULT_SETTINGS, steps, 5).backoff(n, 0.5) for n in (1, 2)] == [5, 50]
    for wrong in (retry(budget=Budget()), retry(reject=bool), retry(breaker="x")):
        with pytest.raises(TypeError, match="a batch goes by reports, not by errors"):
            BatchTerms.combine(DEFAULT_SETTINGS, wrong, 5)
    with pytest.raises(TypeError, match="retry= must be a RetryPolicy"):
        BatchTerms.combine(DEFAULT_SETTINGS, 4, 5)  # type: ignore[arg-type]
