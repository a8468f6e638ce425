"""Rules: from what `on=` was given to one function that says what an error means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from ..core.classify import classify, meaning
from ..core.fault import PERMANENT, TRANSIENT, UNKNOWN, Fault, Rule, Rules
from ..errors import Rejected

Judge: TypeAlias = Callable[[Exception], Fault]
REMEMBERED = 256
"""Kinds of errors whose meaning is kept: enough for a program, and a bound for one that makes classes as it goes."""


class Judgement(NamedTuple):
    """How errors are judged: by a function, and at once for kinds whose meaning does not depend on the single error."""

    judge: Judge
    known: dict[type[Exception], Fault]
    rules: tuple[Rule, ...] = ()
    """What `on=` was given; empty: the standard rule. For `redrive layers` to read."""


def judgement(on: Rules | None, name: str = "on") -> Judgement:
    """One function for all the rules; without any, the standard classifier. name: of the option, in what is said of it."""
    if on is None:
        return Judgement(classify, {})
    rules = on if isinstance(on, tuple) else (on,)
    if not rules:
        raise ValueError("on=() would retry nothing; remove it for the standard rule, or use RetryPolicy.disabled()")
    for rule in rules:
        _check(rule, name)
    if all(isinstance(rule, type) for rule in rules):
        return _by_type(rules)
    return Judgement(_by_rules(rules), {}, rules)


def _by_type(types: tuple[Any, ...]) -> Judgement:
    known: dict[type[Exception], Fault] = {}

    def by_type(error: Exception) -> Fault:
        fault = _typed(error, types)
        if fault is TRANSIENT and meaning(type(error)) is not None and len(known) < REMEMBERED:
            known[type(error)] = fault
        return fault

    return Judgement(by_type, known, types)


def _by_rules(rules: tuple[Rule, ...]) -> Judge:
    return lambda error: _ruled(error, rules)


# Functions of the module, not closures: one that called itself for the members of a group would be a reference cycle.


def _typed(error: Exception, types: tuple[Any, ...]) -> Fault:
    if isinstance(error, (*types, Rejected)):
        return _told(classify(error))
    return _group(error, _typed, types)


def _ruled(error: Exception, rules: tuple[Rule, ...]) -> Fault:
    for rule in rules:
        if isinstance(rule, type):
            said: Fault | bool | None = isinstance(error, rule) or None
        else:
            said = rule(error)
        if said is None:
            continue
        if isinstance(said, Fault):
            return said
        if not isinstance(said, bool):
            raise TypeError(f"a rule must return a Fault, True, False or None, not {type(said).__name__}: {said!r}")
        return _told(classify(error)) if said else PERMANENT
    return classify(error) if isinstance(error, Rejected) else _group(error, _ruled, rules)


def _group(error: Exception, judge: Callable[[Exception, tuple[Any, ...]], Fault], rules: tuple[Any, ...]) -> Fault:
    """What a group means that no rule knows as a whole: retried only if each of its members would be."""
    if not isinstance(error, ExceptionGroup):
        return UNKNOWN
    from ..core.known.look import MOST_ERRORS, worst  # noqa: PLC0415  # groups are rare

    if len(error.exceptions) > MOST_ERRORS:
        return UNKNOWN
    return worst([judge(member, rules) for member in error.exceptions])


def _told(known: Fault) -> Fault:
    """Retry, because the user says so; what the server asked for, and what was never sent, still holds."""
    if known is UNKNOWN or known is PERMANENT:
        return TRANSIENT
    return known if known.retryable else replace(known, kind="transient")


def _check(rule: object, name: str) -> None:
    if isinstance(rule, type):
        if not issubclass(rule, BaseException):
            raise TypeError(f"{name}= takes exception types and functions; {rule.__name__} is not an exception type")
        if not issubclass(rule, Exception):
            raise TypeError(f"{rule.__name__} is never retried, because it stops the program or the caller; remove it")
    elif not callable(rule):
        raise TypeError(f"{name}= takes exception types, functions of the error, or a tuple of both, not {rule!r}")
