"""RetryPolicy: five validated numbers, its waits, and the forms it is read from."""

from __future__ import annotations

import math
import pickle
import re
import tomllib
from collections import OrderedDict
from dataclasses import FrozenInstanceError, fields, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest

import redrive
from redrive import RetryPolicy
from redrive.core.policy import SERVICE, exponential_wait

NAMES = ("max_attempts", "backoff_base", "backoff_max", "jitter", "timeout")
KNOWN = "max_attempts, backoff_base, backoff_max, jitter, timeout"


class Five:
    """A whole number of another library."""

    def __index__(self) -> int:
        return 5


@pytest.mark.req("R-1")
def test_the_five_fields_and_their_defaults() -> None:
    policy = RetryPolicy()
    assert tuple(field.name for field in fields(policy)) == NAMES
    assert tuple(getattr(policy, name) for name in NAMES) == (3, 1.0, 60.0, 1.0, None)


@pytest.mark.req("R-1")
def test_a_policy_is_frozen_and_has_slots() -> None:
    policy = RetryPolicy()
    for name in NAMES:
        with pytest.raises(FrozenInstanceError):
            setattr(policy, name, 1)
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        policy.retries = 1  # type: ignore[attr-defined]
    assert not hasattr(policy, "__dict__")


@pytest.mark.req("R-1")
def test_a_policy_is_equal_by_value_hashable_and_printable() -> None:
    one, same, other = RetryPolicy(5, 1, 2), RetryPolicy(max_attempts=5, backoff_base=1.0, backoff_max=2.0), RetryPolicy(4, 1, 2)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert {one: "here"}[same] == "here"
    assert repr(one) == "RetryPolicy(max_attempts=5, backoff_base=1.0, backoff_max=2.0, jitter=1.0, timeout=None)"
    assert eval(repr(one)) == one


def test_a_policy_survives_pickling_and_copies() -> None:
    policy = RetryPolicy(7, 0.1, 3, 0, 9)
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert replace(policy, timeout=None) == RetryPolicy(7, 0.1, 3, 0)


@pytest.mark.req("R-8")
def test_the_policy_is_exported_by_the_root_package() -> None:
    assert redrive.RetryPolicy is RetryPolicy
    assert "RetryPolicy" in redrive.__all__


@pytest.mark.req("R-3")
def test_disabled_is_one_attempt() -> None:
    assert RetryPolicy.disabled() == RetryPolicy(max_attempts=1)


def test_a_service_call_has_short_waits() -> None:
    assert RetryPolicy.service_call() == SERVICE == RetryPolicy(3, 0.25, 5.0, 0.25)
    assert SERVICE.timeout is None


@pytest.mark.req("R-2")
@pytest.mark.parametrize("given", [0, -1, -(10**400)])
def test_fewer_than_one_attempt_is_rejected(given: int) -> None:
    with pytest.raises(ValueError, match=f"^max_attempts must be at least 1: {given}$"):
        RetryPolicy(max_attempts=given)


@pytest.mark.req("R-2")
@pytest.mark.parametrize("given", [True, False, "3", 3.0, math.nan, math.inf, None, [3], int])
def test_attempts_must_be_a_whole_number(given: Any) -> None:
    said = f"max_attempts must be a whole number, not {type(given).__name__}: {given!r}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        RetryPolicy(max_attempts=given)


@pytest.mark.req("R-2")
def test_attempts_of_another_library_become_an_int() -> None:
    policy = RetryPolicy(max_attempts=Five())  # type: ignore[arg-type]
    assert policy == RetryPolicy(max_attempts=5)
    assert type(policy.max_attempts) is int


@pytest.mark.req("R-2")
@pytest.mark.parametrize("name", ["backoff_base", "backoff_max", "jitter", "timeout"])
@pytest.mark.parametrize("given", [-1, -0.001, math.nan, math.inf, -math.inf, 10**400])
def test_negative_infinite_and_nan_seconds_are_rejected(name: str, given: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} (must not be negative|must be a finite number|is too large a number)"):
        RetryPolicy(**{name: given})  # type: ignore[arg-type]


@pytest.mark.req("R-2")
@pytest.mark.parametrize("name", ["backoff_base", "backoff_max", "jitter", "timeout"])
@pytest.mark.parametrize("given", [True, False, "1", "", b"1", [1], {}, object(), timedelta(1), float])
def test_seconds_must_be_a_number(name: str, given: Any) -> None:
    said = f"{name} must be a number, not {type(given).__name__}: {given!r}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        RetryPolicy(**{name: given})


@pytest.mark.req("R-2")
@pytest.mark.parametrize("name", ["backoff_base", "backoff_max", "jitter"])
def test_only_the_timeout_may_be_none(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be a number, not NoneType: None$"):
        RetryPolicy(**{name: None})  # type: ignore[arg-type]
    assert RetryPolicy(timeout=None).timeout is None


@pytest.mark.req("R-2")
def test_a_timeout_must_be_positive_and_waits_may_be_zero() -> None:
    for zero in (0, 0.0, -0.0):
        with pytest.raises(ValueError, match=f"^timeout must be above 0, or None for no limit: {zero}$"):
            RetryPolicy(timeout=zero)
    assert RetryPolicy(timeout=5e-324).timeout == 5e-324
    assert RetryPolicy(backoff_base=0, backoff_max=0, jitter=0).wait(1, 0.9) == 0


@pytest.mark.req("R-1")
def test_ints_are_stored_as_floats() -> None:
    policy = RetryPolicy(3, 1, 2, 3, 4)
    assert [type(getattr(policy, name)) for name in NAMES] == [int, float, float, float, float]


def test_any_number_of_attempts_is_accepted() -> None:
    assert RetryPolicy(max_attempts=100_000).max_attempts == 100_000
    assert RetryPolicy(max_attempts=1).max_attempts == 1


@pytest.mark.req("R-4")
def test_the_wait_doubles_up_to_its_limit_plus_jitter() -> None:
    policy = RetryPolicy(backoff_base=1.5, backoff_max=10, jitter=2)
    assert [policy.wait(attempt, 0.0) for attempt in range(1, 6)] == [1.5, 3.0, 6.0, 10.0, 10.0]
    assert [policy.wait(attempt, 0.5) for attempt in range(1, 6)] == [2.5, 4.0, 7.0, 11.0, 11.0]
    assert policy.wait(2, 1.0) == 5.0


@pytest.mark.req("R-4")
def test_a_base_above_the_limit_is_cut_from_the_first_wait() -> None:
    assert RetryPolicy(backoff_base=100, backoff_max=7, jitter=0).wait(1, 0.5) == 7.0


@pytest.mark.req("R-4")
@pytest.mark.parametrize("base", [0.0, 5e-324, 1e-9, 1.0, 1e308])
@pytest.mark.parametrize("attempt", [1_100, 100_000, 10**30])
def test_late_attempts_have_a_wait(base: float, attempt: int) -> None:
    wait = RetryPolicy(backoff_base=base, backoff_max=60, jitter=1).wait(attempt, 0.5)
    assert wait == (0.5 if base == 0 else 60.5) or base == 5e-324
    assert 0.5 <= wait <= 60.5


@pytest.mark.req("R-4")
def test_doubling_is_infinite_beyond_the_range_of_floats() -> None:
    assert [exponential_wait(3.0, attempt) for attempt in (1, 2, 3, 11)] == [3.0, 6.0, 12.0, 3072.0]
    assert exponential_wait(1.0, 1024) == 2.0**1023
    assert exponential_wait(1.0, 1025) == math.inf
    assert exponential_wait(0.0, 100_000) == 0.0


@pytest.mark.req("R-7")
def test_a_mapping_becomes_a_policy_and_a_missing_section_none() -> None:
    assert RetryPolicy.from_mapping(None) is None
    assert RetryPolicy.from_mapping({}) == RetryPolicy()
    assert RetryPolicy.from_mapping({"max_attempts": 5}) == RetryPolicy(5)
    every = {"max_attempts": 2, "backoff_base": 0.5, "backoff_max": 4, "jitter": 0, "timeout": 30}
    for kind in (dict, OrderedDict, MappingProxyType):
        assert RetryPolicy.from_mapping(kind(every)) == RetryPolicy(2, 0.5, 4, 0, 30)


@pytest.mark.req("R-7")
def test_a_toml_table_becomes_a_policy() -> None:
    config = tomllib.loads("[crm.retry]\nmax_attempts = 5\nbackoff_base = 0.5\ntimeout = 30\n")
    assert RetryPolicy.from_mapping(config["crm"]["retry"]) == RetryPolicy(5, 0.5, timeout=30)
    assert RetryPolicy.from_mapping(config["crm"].get("other")) is None
    with pytest.raises(ValueError, match="finite"):
        RetryPolicy.from_mapping(tomllib.loads("jitter = nan"))


@pytest.mark.req("R-7")
@pytest.mark.parametrize("key", ["max_retries", "Max_Attempts", "", "retry", 5])
def test_an_unknown_key_is_named_with_the_known_ones(key: Any) -> None:
    said = f"unknown key {key!r} in a retry policy; use one of: {KNOWN}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        RetryPolicy.from_mapping({"max_attempts": 5, key: 1})


@pytest.mark.req("R-7")
@pytest.mark.parametrize("section", [5, "max_attempts=5", [("max_attempts", 5)], RetryPolicy(), True])
def test_a_value_that_is_not_a_mapping_is_rejected(section: Any) -> None:
    said = f"a retry policy must be a table of {KNOWN}, not {type(section).__name__}: {section!r}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        RetryPolicy.from_mapping(section)


@pytest.mark.req("R-7", "R-2")
def test_invalid_values_in_a_mapping_are_rejected_like_arguments() -> None:
    with pytest.raises(TypeError, match="^max_attempts must be a whole number, not str: '5'$"):
        RetryPolicy.from_mapping({"max_attempts": "5"})
    with pytest.raises(ValueError, match="^jitter must not be negative: -1$"):
        RetryPolicy.from_mapping({"jitter": -1})


@pytest.mark.req("R-7")
def test_aliases_of_the_batch_settings_are_accepted() -> None:
    given = {"max_in_call_retries": 3, "backoff_base_s": 2.0, "backoff_cap_s": 60.0}
    assert RetryPolicy.from_mapping(given) == RetryPolicy(max_attempts=4, backoff_base=2, backoff_max=60)
    assert RetryPolicy.from_mapping({"max_in_call_retries": 0}) == RetryPolicy.disabled()
    with pytest.raises(ValueError, match="^max_in_call_retries must be at least 0: -1$"):
        RetryPolicy.from_mapping({"max_in_call_retries": -1})
    with pytest.raises(TypeError, match="^max_in_call_retries must be a whole number, not bool: True$"):
        RetryPolicy.from_mapping({"max_in_call_retries": True})


@pytest.mark.req("R-7")
@pytest.mark.parametrize(
    ("one", "other", "field"),
    [("max_attempts", "max_in_call_retries", "max_attempts"), ("backoff_cap_s", "backoff_max", "backoff_max")],
)
def test_two_names_for_one_field_are_rejected(one: str, other: str, field: str) -> None:
    with pytest.raises(TypeError, match=f"^{other!r} and another key both set {field!r} in a retry policy; remove one$"):
        RetryPolicy.from_mapping({one: 1, other: 1})


@pytest.mark.req("R-7")
def test_the_environment_becomes_a_policy_or_none_if_unset() -> None:
    environ = {
        "CRM_MAX_ATTEMPTS": "5",
        "CRM_BACKOFF_BASE": "0.5",
        "CRM_BACKOFF_MAX": " 8 ",
        "CRM_JITTER": "0",
        "CRM_TIMEOUT": "30",
        "CRM_URL": "https://crm",
    }
    for prefix in ("CRM", "crm", "CRM_"):
        assert RetryPolicy.from_env(prefix, environ) == RetryPolicy(5, 0.5, 8, 0, 30)
    assert RetryPolicy.from_env("ERP", environ) is None
    assert RetryPolicy.from_env("X", {"X_JITTER": "0.5"}) == RetryPolicy.from_env("MAX", {"MAX_JITTER": "0.5"}) is not None
    assert RetryPolicy.from_env("CRM", {"CRM_JITTER": "0.5"}) == RetryPolicy(jitter=0.5)


@pytest.mark.req("R-7")
@pytest.mark.parametrize("text", ["", " ", "none", "None", " NONE "])
def test_an_empty_timeout_variable_means_no_limit(text: str) -> None:
    assert RetryPolicy.from_env("CRM", {"CRM_TIMEOUT": text}) == RetryPolicy(timeout=None)


@pytest.mark.req("R-7")
def test_aliases_are_accepted_in_the_environment() -> None:
    assert RetryPolicy.from_env("TILES", {"TILES_MAX_IN_CALL_RETRIES": "3", "TILES_BACKOFF_CAP_S": "9"}) == RetryPolicy(
        4, backoff_max=9
    )
    assert RetryPolicy.from_env("TILES", {"TILES_MAX_IN_CALL_RETRIES": "0"}) == RetryPolicy.disabled()
    with pytest.raises(TypeError, match="both set 'max_attempts'"):
        RetryPolicy.from_env("TILES", {"TILES_MAX_IN_CALL_RETRIES": "3", "TILES_MAX_ATTEMPTS": "4"})


@pytest.mark.req("R-7")
def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RetryPolicy.from_env("REDRIVE_TEST_POLICY") is None
    monkeypatch.setenv("REDRIVE_TEST_POLICY_MAX_ATTEMPTS", "9")
    assert RetryPolicy.from_env("REDRIVE_TEST_POLICY") == RetryPolicy(9)
    assert RetryPolicy.from_env("REDRIVE_TEST_POLICY", {}) is None


@pytest.mark.req("R-7")
@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("CRM_MAX_ATTEMPTS", "many", "CRM_MAX_ATTEMPTS must be a whole number, not 'many'"),
        ("CRM_MAX_ATTEMPTS", "2.5", "CRM_MAX_ATTEMPTS must be a whole number, not '2.5'"),
        ("CRM_MAX_ATTEMPTS", "", "CRM_MAX_ATTEMPTS must be a whole number, not ''"),
        ("CRM_MAX_ATTEMPTS", "0", "CRM_MAX_ATTEMPTS must be at least 1: 0"),
        ("CRM_MAX_IN_CALL_RETRIES", "x", "CRM_MAX_IN_CALL_RETRIES must be a whole number, not 'x'"),
        ("CRM_MAX_IN_CALL_RETRIES", "-1", "CRM_MAX_IN_CALL_RETRIES must be at least 0: -1"),
        ("CRM_BACKOFF_BASE", "1s", "CRM_BACKOFF_BASE must be a number of seconds, not '1s'"),
        ("CRM_BACKOFF_MAX", "", "CRM_BACKOFF_MAX must be a number of seconds, not ''"),
        ("CRM_BACKOFF_MAX", "none", "CRM_BACKOFF_MAX must be a number of seconds, not 'none'"),
        ("CRM_JITTER", "-1", "CRM_JITTER must not be negative: -1.0"),
        ("CRM_JITTER", "inf", "CRM_JITTER must be a finite number, not inf"),
        ("CRM_BACKOFF_CAP_S", "nan", "CRM_BACKOFF_CAP_S must be a finite number, not nan"),
        ("CRM_TIMEOUT", "0", "CRM_TIMEOUT must be above 0, or None for no limit: 0.0"),
        ("CRM_TIMEOUT", "-5", "CRM_TIMEOUT must not be negative: -5.0"),
    ],
)
def test_an_invalid_variable_is_named_with_the_expected_form(variable: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RetryPolicy.from_env("CRM", {variable: text})


@pytest.mark.parametrize("prefix", ["", "_", None, 5])
def test_an_empty_prefix_is_rejected(prefix: Any) -> None:
    said = f"the prefix of the variables must be text, such as 'CRM_RETRY': {prefix!r}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        RetryPolicy.from_env(prefix, {"_MAX_ATTEMPTS": "3"})


@pytest.mark.req("R-1")
def test_a_subclass_keeps_its_type() -> None:
    class Mine(RetryPolicy):
        pass

    assert type(Mine.disabled()) is type(Mine.service_call()) is type(Mine.from_mapping({})) is Mine
    assert type(Mine.from_env("A", {"A_JITTER": "1"})) is Mine
