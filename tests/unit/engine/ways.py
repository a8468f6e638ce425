"""Every path through the loops, and functions with scripted failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from redrive import RetryPolicy

ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)
WAYS: dict[str, dict[str, Any]] = {
    "untimed": {"attempt_timeout": None},
    "timed": {},
    "limited": {"timeout": 60.0},
    "only limited": {"timeout": 60.0, "attempt_timeout": None},
    "keyed": {"key": "a:b:c:d:v1"},
    "looked at": {"reject": lambda result: result == "bad"},
}

Work: TypeAlias = Callable[[], Any]


def raiser(*errors: type[BaseException], then: Any = "good") -> tuple[Work, list[int]]:
    """A function that raises these in turn, then returns a result. Also returns the list of its calls."""
    calls: list[int] = []

    def work() -> Any:
        calls.append(1)
        if len(calls) <= len(errors):
            raise errors[len(calls) - 1](f"failure {len(calls)}")
        return then

    return work, calls
