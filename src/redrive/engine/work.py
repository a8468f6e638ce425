"""What a loop knows of the function it calls: how long it may take, its key, and what it may not return."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from ..core.key import Key, KeyLike, Template
from .settings import Settings

KeyMaker: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], KeyLike | None]


class Limits:
    """The bounds of one function's calls, in seconds; infinite where there is none."""

    __slots__ = ("attempt", "key", "shortest", "special", "timeout")

    def __init__(self, attempt: float, timeout: float, key: KeyMaker, special: bool) -> None:
        """special: whether every attempt needs the whole loop: it has a key, a breaker, a hedge, or results to look at."""
        self.attempt = attempt
        self.timeout = timeout
        self.shortest = min(attempt, timeout)
        self.key = key
        self.special = special


def limits(settings: Settings, fn: Callable[..., Any]) -> Limits:
    """The bounds of calling `fn` with these settings."""
    attempt = math.inf if settings.attempt_timeout is None else settings.attempt_timeout
    timeout = math.inf if settings.policy.timeout is None else settings.policy.timeout
    special = (
        settings.key is not None or settings.reject is not None or settings.breaker is not None or settings.hedge is not None
    )
    return Limits(attempt, timeout, _key_maker(settings.key, fn), special)


def _key_maker(key: Any, fn: Callable[..., Any]) -> KeyMaker:
    if key is None or isinstance(key, Key):
        return lambda _args, _kwargs: key
    if isinstance(key, str):
        return Template.over(key, fn).key
    return lambda args, kwargs: key(*args, **kwargs)


def settled(result: object, settings: Settings) -> type:
    """The type of a plain function's result; an awaitable is no result."""
    kind = type(result)
    if hasattr(kind, "__await__"):
        if hasattr(result, "close"):
            result.close()  # or Python warns that it was never awaited, far from here
        raise TypeError(
            f"{settings.operation} is a sync function, but returned an awaitable ({kind.__name__}), whose failures cannot be "
            f"seen here; decorate the `async def` itself, or use acall"
        )
    return kind
