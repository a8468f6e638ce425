"""Layer: the one place in a client that tries again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..core.budget import Budget
from ..core.policy import RetryPolicy
from ..engine.retry import DEFAULT, Retry, RetryLike
from ..engine.settings import Options, Settings

MOST = 256
"""Loops that are kept ready. More operations than that are made anew at each call: names with an id in them, probably."""


class Layer:
    """A `Retry` as a client uses it: a loop for each operation, made once. Threads and event loops may share it."""

    __slots__ = ("_attempt", "_loops", "_make", "retry")

    def __init__(
        self,
        retry: Retry,
        make: Callable[[Settings, Callable[..., Any]], Callable[..., Any]],
        attempt: Callable[..., Any],
    ) -> None:
        """make: the engine's loop of the right colour. attempt: makes one attempt of a call, which has the call's `key`."""
        self.retry = retry
        self._make = make
        self._attempt = attempt
        self._loops: dict[tuple[str, bool, bool, Callable[[str], Exception]], Callable[..., Any]] = {}

    @property
    def declared(self) -> bool | None:
        """What `retry(idempotent=...)` says of every request; None: nothing."""
        settings = self.retry.settings
        return settings.idempotent if settings.declared else None

    def loop(self, operation: str, repeatable: bool, keyed: bool, overdue: Callable[[str], Exception], /) -> Callable[..., Any]:
        """What makes all attempts of a call. repeatable: it may be sent twice; else only what was never sent is retried.

        keyed: it has a key, which is told to whoever looks from inside. overdue: makes the library's own time-out.
        """
        found = self._loops.get((operation, repeatable, keyed, overdue))
        if found is None:
            settings = replace(self.retry.settings, key=_key if keyed else None, idempotent=repeatable, overdue=overdue)
            found = self._make(settings.named(operation, self.retry), self._attempt)
            if len(self._loops) < MOST:
                self._loops[operation, repeatable, keyed, overdue] = found
        return found


def _key(call: Any) -> Any:
    return call.key


def chosen(retry: RetryLike | None, name: str, /, **options: Any) -> Retry:
    """What a client was given, or its default (with these options): three attempts and a budget of its own."""
    if isinstance(retry, Retry):
        _check(retry.settings)
        return Retry(retry.settings.named(retry.operation or name, retry))
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise TypeError(f"retry= must be a RetryPolicy or a result of retry(...), not {type(retry).__name__}: {retry!r}")
    given: Options = {"budget": Budget(), "operation": name, **options}  # type: ignore[typeddict-item]  # of our own
    return DEFAULT.using(retry, **given)


def _check(settings: Settings) -> None:
    if settings.spill is not None:
        raise TypeError("a client cannot enqueue a request as a job; pass spill= to the retry of the function around it")
    if settings.hedge is not None:
        raise TypeError(
            "a client makes one request at a time for a call; pass hedge= to the retry of the async function around it"
        )
    if settings.key is not None:
        raise TypeError("a client needs a key for each call, not one for all; pass idempotency_key= to the call")
