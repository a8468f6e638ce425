"""Durable: what a function is told that workers run: its attempts, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..backoff import steps
from ..core.policy import RetryPolicy
from ..engine.retry import Retry
from ..engine.settings import Settings
from .kind import Colour

PLAIN = Settings().using(None, {"attempt_timeout": None})
DURABLE = PLAIN.using(RetryPolicy(max_attempts=5), {"backoff": steps(5, 30, 120, 600)})
"""Where `retry=` is not given: five attempts, 5 s, 30 s, 2 min and 10 min apart (± 10 %), as long as each takes."""
OF_CALLS = {
    "key": "the key of the job",
    "spill": "not needed, since the work is already durable",
    "hedge": "not needed, since a job runs once at a time",
}
"""What `retry(...)` may be told for calls in process, and what stands for it here."""


def settings_of(name: str, retry: object, /) -> Settings:
    """What `retry=` says of durable attempts, checked."""
    if retry is None:
        return DURABLE
    if isinstance(retry, RetryPolicy):
        return PLAIN.using(retry, {})
    if not isinstance(retry, Retry):
        raise TypeError(f"{name}: retry= must be a RetryPolicy, a Retry (from `retry(...)`) or None, not {retry!r}")
    for option, own in OF_CALLS.items():
        if getattr(retry.settings, option) is not None:
            raise TypeError(f"{name}: retry= has {option}=, which is only for calls in process; here it is {own}")
    # The 10 s of `retry(...)` are for calls, unless somebody said so: work may take as long as it takes.
    return retry.settings if retry.settings.timed else retry.settings.using(None, {"attempt_timeout": None})


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
