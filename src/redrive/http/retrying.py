"""Retry loops of a client or transport: one for each operation, built once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..core.budget import Budget
from ..core.policy import RetryPolicy
from ..engine.retry import DEFAULT, Retry, RetryLike
from ..engine.settings import Options, RetrySettings

MAX_CACHED_LOOPS = 256
"""Operations beyond this limit get a new loop for each call. Their names probably contain ids."""


class RetryLoops:
    """The engine's loops for the operations of a client. Threads and event loops may share it."""

    __slots__ = ("_attempt", "_build_loop", "_loops", "retry")

    def __init__(
        self,
        retry: Retry,
        build_loop: Callable[[RetrySettings, Callable[..., Any]], Callable[..., Any]],
        attempt: Callable[..., Any],
    ) -> None:
        """Prepare the loops of a client.

        Args:
            retry: The policy.
            build_loop: Function of the engine that makes sync or async loops.
            attempt: Makes one attempt. It takes a call with a `key`.
        """
        self.retry = retry
        self._build_loop = build_loop
        self._attempt = attempt
        self._loops: dict[
            tuple[str, bool, bool, Callable[[str], Exception]], Callable[..., Any]
        ] = {}

    @property
    def declared_idempotent(self) -> bool | None:
        """The value of `retry(idempotent=...)`, or None if it was not set."""
        settings = self.retry.settings
        return settings.idempotent if settings.idempotent_explicit else None

    def loop(
        self,
        operation: str,
        repeatable: bool,
        has_key: bool,
        timeout_error: Callable[[str], Exception],
        /,
    ) -> Callable[..., Any]:
        """Return the function that makes all attempts of a call.

        A request that is not repeatable is retried only if it was never sent. With `has_key`,
        `current()` shows the idempotency key of the call.
        """
        loop = self._loops.get((operation, repeatable, has_key, timeout_error))
        if loop is None:
            key = _key_of if has_key else None
            settings = replace(
                self.retry.settings, key=key, idempotent=repeatable, timeout_error=timeout_error
            )
            loop = self._build_loop(settings.named(operation, self.retry), self._attempt)
            if len(self._loops) < MAX_CACHED_LOOPS:
                self._loops[operation, repeatable, has_key, timeout_error] = loop
        return loop


def _key_of(call: Any) -> Any:
    return call.key


def resolve_retry(retry: RetryLike | None, name: str, /, **defaults: Any) -> Retry:
    """Return the `Retry` of a client: the one passed, or three attempts with a new budget.

    `name` is the operation if `retry` has none. `defaults` apply unless `retry` is a `Retry`.
    """
    if isinstance(retry, Retry):
        _check_supported(retry.settings)
        return Retry(retry.settings.named(retry.operation or name, retry))
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise TypeError(
            "retry= must be a RetryPolicy or a result of retry(...), "
            f"not {type(retry).__name__}: {retry!r}"
        )
    options: Options = {"budget": Budget(), "operation": name, **defaults}  # type: ignore[typeddict-item]  # our own names
    return DEFAULT.using(retry, **options)


def _check_supported(settings: RetrySettings) -> None:
    if settings.spill is not None:
        raise TypeError(
            "a client cannot enqueue a request as a job; "
            "pass spill= to the retry of the function around it"
        )
    if settings.hedge is not None:
        raise TypeError(
            "a client makes one request at a time for a call; "
            "pass hedge= to the retry of the async function around it"
        )
    if settings.key is not None:
        raise TypeError(
            "a client needs a key for each call, not one for all; pass idempotency_key= to the call"
        )
