"""Error rules: from the value of `on=` to one function that classifies errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from ..core.classification.classify import classify, meaning
from ..core.fault import PERMANENT, TRANSIENT, UNKNOWN, Fault, Rule, Rules
from ..errors import Rejected

Classifier: TypeAlias = Callable[[Exception], Fault]
MAX_KNOWN_TYPES = 256
"""Error types whose fault is remembered. Some programs create classes at run time."""


class ErrorRules(NamedTuple):
    """How errors are classified."""

    classify: Classifier
    known_faults: dict[type[Exception], Fault]
    """Types all of whose errors have the same fault. It fills up as errors occur."""
    rules: tuple[Rule, ...] = ()
    """The value of `on=`, for `redrive layers`. Empty: the standard rule."""


def error_rules(on: Rules | None, name: str = "on") -> ErrorRules:
    """Return the rules that a value of `on=` stands for. None: the standard rule.

    Args:
        on: Exception types and functions of the error.
        name: Name of the option in error messages.

    Raises:
        TypeError: A rule is not valid.
        ValueError: There is no rule.
    """
    if on is None:
        return ErrorRules(classify, {})
    rules = on if isinstance(on, tuple) else (on,)
    if not rules:
        raise ValueError(
            "on=() would retry nothing; "
            "remove it for the standard rule, or use RetryPolicy.disabled()"
        )
    for rule in rules:
        _check_rule(rule, name)
    if all(isinstance(rule, type) for rule in rules):
        return _type_rules(rules)
    return ErrorRules(_function_rules(rules), {}, rules)


def _type_rules(types: tuple[Any, ...]) -> ErrorRules:
    known_faults: dict[type[Exception], Fault] = {}

    def classify_by_type(error: Exception) -> Fault:
        fault = _match_types(error, types)
        if (
            fault is TRANSIENT
            and meaning(type(error)) is not None
            and len(known_faults) < MAX_KNOWN_TYPES
        ):
            known_faults[type(error)] = fault
        return fault

    return ErrorRules(classify_by_type, known_faults, types)


def _function_rules(rules: tuple[Rule, ...]) -> Classifier:
    return lambda error: _match_rules(error, rules)


# Functions of the module, because a closure that calls itself would be a reference cycle.


def _match_types(error: Exception, types: tuple[Any, ...]) -> Fault:
    if isinstance(error, (*types, Rejected)):
        return _as_retryable(classify(error))
    return _classify_group(error, _match_types, types)


def _match_rules(error: Exception, rules: tuple[Rule, ...]) -> Fault:
    for rule in rules:
        if isinstance(rule, type):
            decision: Fault | bool | None = isinstance(error, rule) or None
        else:
            decision = rule(error)
        if decision is None:
            continue
        if isinstance(decision, Fault):
            return decision
        if not isinstance(decision, bool):
            kind = type(decision).__name__
            raise TypeError(
                f"a rule must return a Fault, True, False or None, not {kind}: {decision!r}"
            )
        return _as_retryable(classify(error)) if decision else PERMANENT
    if isinstance(error, Rejected):
        return classify(error)
    return _classify_group(error, _match_rules, rules)


def _classify_group(
    error: Exception,
    match: Callable[[Exception, tuple[Any, ...]], Fault],
    rules: tuple[Any, ...],
) -> Fault:
    """Classify a group that no rule matches. It is retryable only if all of its members are."""
    if not isinstance(error, ExceptionGroup):
        return UNKNOWN
    from ..core.classification.known.inspect import MAX_ERRORS, worst_fault  # noqa: PLC0415  # groups are rare

    if len(error.exceptions) > MAX_ERRORS:
        return UNKNOWN
    return worst_fault([match(member, rules) for member in error.exceptions])


def _as_retryable(fault: Fault) -> Fault:
    """Return a retryable fault that keeps Retry-After and whether the request was sent."""
    if fault is UNKNOWN or fault is PERMANENT:
        return TRANSIENT
    return fault if fault.retryable else replace(fault, kind="transient")


def _check_rule(rule: object, name: str) -> None:
    if isinstance(rule, type):
        if not issubclass(rule, BaseException):
            raise TypeError(
                f"{name}= takes exception types and functions; "
                f"{rule.__name__} is not an exception type"
            )
        if not issubclass(rule, Exception):
            raise TypeError(
                f"{rule.__name__} is never retried, because it stops the program or the caller; "
                "remove it"
            )
    elif not callable(rule):
        raise TypeError(
            f"{name}= takes exception types, functions of the error, or a tuple of both, not "
            f"{rule!r}"
        )
