"""Durable: what a function is told that workers run: its attempts, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..backoff import steps
from ..core.policy import RetryPolicy
from ..engine.retry import Retry
from ..engine.settings import POLICY_NAMES, Settings
from .kind import Colour

PLAIN = Settings().using(None, {"attempt_timeout": None})
DURABLE = PLAIN.using(RetryPolicy(5, 5, 600, 0.5), {"backoff": steps(5, 30, 120, 600)})
"""Defaults of jobs: five attempts, 5 s, 30 s, 2 min and 10 min apart (± 10 %), no time limit for an attempt.

The numbers of the policy apply where `retry(...)` sets only some of `backoff_base`, `backoff_max` and `jitter`.
"""
JITTER = 0.1
"""Default of `jitter`, as a part of `backoff_base`."""
OF_CALLS = {
    "key": "the key of the job",
    "spill": "not needed, since the work is already durable",
    "hedge": "not needed, since a job runs once at a time",
    "reject": "an error that the function raises",
}
"""What `retry(...)` may be told for calls in process, and what stands for it here."""


def settings_of(name: str, retry: object, default: Settings = DURABLE, /) -> Settings:
    """Return the settings of durable attempts for a `retry=`, checked.

    A `RetryPolicy` is used as it is. Options that `retry(...)` did not get have the values of `default`.
    """
    if retry is None:
        return default
    if isinstance(retry, RetryPolicy):
        return PLAIN.using(retry, {})
    if not isinstance(retry, Retry):
        raise TypeError(f"{name}: retry= must be a RetryPolicy, a Retry (from `retry(...)`) or None, not {retry!r}")
    for option, own in OF_CALLS.items():
        if getattr(retry.settings, option) is not None:
            raise TypeError(f"{name}: retry= has {option}=, which is only for calls in process; here it is {own}")
    return _completed(retry.settings, default)


def _completed(own: Settings, default: Settings) -> Settings:
    """Return `own`, with the values of `default` for options that were not passed."""
    changes: dict[str, Any] = {}
    if "attempt_timeout" not in own.given:
        changes["attempt_timeout"] = default.attempt_timeout
    if "policy" not in own.given:
        policy = changes["policy"] = _policy(own, default.policy)
        if own.given.isdisjoint(("backoff", "backoff_base", "backoff_max", "jitter")):
            changes["backoff"] = default.backoff
        elif "backoff" not in own.given:
            changes["backoff"] = policy.wait
    return replace(own, **changes)


def _policy(own: Settings, default: RetryPolicy) -> RetryPolicy:
    passed = {name: getattr(own.policy, name) for name in POLICY_NAMES if name in own.given}
    if (base := passed.get("backoff_base")) is not None:
        passed.setdefault("backoff_max", max(base, default.backoff_max))  # a longer first wait is not cut
        passed.setdefault("jitter", JITTER * base)
    return replace(default, **passed)


def colour_of(name: str, fn: Callable[..., Any], /, *, in_transaction: bool) -> Colour:
    """How a function is run; TypeError where it cannot be run so."""
    if isinstance(fn, (classmethod, staticmethod, type)) or not callable(fn):
        raise TypeError(f"{name}: must decorate a function, not {fn!r}")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{name}: {place_of(fn)} is a generator, which has no single result; use a function")
    if not in_transaction:
        return "async" if inspect.iscoroutinefunction(fn) else "plain"
    if inspect.iscoroutinefunction(fn):
        raise TypeError(
            f"{name}: {place_of(fn)} is async, and its transaction would stay open while other tasks run; in_transaction=True "
            f"is for sync functions"
        )
    return "transaction"


def place_of(fn: Callable[..., Any], /) -> str:
    """Where a function stands, for messages."""
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
