"""Rules: from the value of `on=` to the classification of an error."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import Fault, RetryPolicy, classify, errors, retry
from redrive.core.fault import PERMANENT, TRANSIENT, UNKNOWN
from redrive.engine.settings import MAX_KNOWN_TYPES, error_rules

pytestmark = pytest.mark.req("C-1")
ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)


def classify_by(on: Any, error: Exception) -> Fault:
    return error_rules(on).classify(error)


def test_without_rules_the_standard_rule_applies() -> None:
    assert error_rules(None).classify is classify
    assert classify_by(None, ConnectionResetError()).retryable
    assert classify_by(None, KeyError()) is UNKNOWN


def test_types_select_retryable_errors() -> None:
    assert classify_by(KeyError, KeyError()) is TRANSIENT
    assert classify_by((KeyError, OSError), FileNotFoundError()).retryable
    assert classify_by(KeyError, ValueError()) is UNKNOWN
    assert classify_by(LookupError, KeyError()) is TRANSIENT


def test_types_keep_the_classification_of_the_error() -> None:
    refused = classify_by(ConnectionError, ConnectionRefusedError())
    assert (refused.retryable, refused.sent) == (True, False)
    assert classify_by(TimeoutError, TimeoutError()).kind == "timeout"


def test_rule_functions_decide_or_pass_on() -> None:
    own = Fault("throttled", after=5)
    rules = (lambda error: own if "slow" in str(error) else None, lambda error: "no" not in str(error) or None, KeyError)
    assert classify_by(rules, ValueError("slow")) is own
    assert classify_by(rules, ValueError("x")) is TRANSIENT
    assert classify_by(rules, KeyError("no")) is TRANSIENT
    assert classify_by(rules, ValueError("no")) is UNKNOWN


def test_false_is_final() -> None:
    assert classify_by((lambda _: False, KeyError), KeyError()) is PERMANENT


def test_true_keeps_the_classification_of_the_error() -> None:
    refused = classify_by(lambda _: True, ConnectionRefusedError())
    assert (refused.retryable, refused.sent) == (True, False)
    assert classify_by(lambda _: True, KeyError()) is TRANSIENT


def test_a_permanent_error_is_retried_if_a_type_includes_it() -> None:
    known = classify_by(Exception, FileNotFoundError())
    assert known.retryable


def test_classify_can_be_combined_with_types() -> None:
    assert classify_by((KeyError, classify), ConnectionResetError()).retryable
    assert classify_by((KeyError, classify), KeyError()).retryable
    assert not classify_by((KeyError, classify), ValueError()).retryable


@pytest.mark.parametrize("on", [KeyError, (KeyError, ValueError), (KeyError, lambda _: None), lambda _: None])
def test_a_rejected_result_is_always_retryable(on: Any) -> None:
    assert classify_by(on, errors.Rejected()).retryable


def test_a_rule_may_make_a_rejected_result_final() -> None:
    assert not classify_by(lambda _: False, errors.Rejected()).retryable


def test_the_cache_of_error_types_is_bounded() -> None:
    rules = error_rules(Exception)
    for number in range(MAX_KNOWN_TYPES + 50):
        kind: type[Exception] = type(f"Error{number}", (Exception,), {})
        assert rules.classify(kind()).retryable
    assert 0 < len(rules.known_faults) <= MAX_KNOWN_TYPES


def test_exhausted_retries_of_another_library_are_not_cached() -> None:
    """Whether it is spent depends on each error."""
    calls = 0

    class Busy(Exception):
        pass

    def work() -> None:
        nonlocal calls
        calls += 1
        raise Busy

    with pytest.raises(Busy):
        retry(ZERO, on=lambda _: Fault("transient", spent="their client")).call(work)
    assert calls == 1


@pytest.mark.req("C-11")
@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ((), ValueError, r"on=\(\) would retry nothing"),
        (5, TypeError, "exception types, functions of the error, or a tuple of both, not 5"),
        ([KeyError], TypeError, "or a tuple of both"),
        ("KeyError", TypeError, "or a tuple of both"),
        ((KeyError, "ValueError"), TypeError, "'ValueError'"),
        (int, TypeError, "int is not an exception type"),
        (KeyError("x"), TypeError, r"KeyError\('x'\)"),
        (KeyboardInterrupt, TypeError, "KeyboardInterrupt is never retried"),
        (BaseException, TypeError, "BaseException is never retried"),
        ((KeyError, SystemExit), TypeError, "SystemExit is never retried"),
        (BaseExceptionGroup, TypeError, "BaseExceptionGroup is never retried"),
    ],
    ids=str,
)
def test_invalid_rules_are_rejected_at_decoration(wrong: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        retry(on=wrong)
