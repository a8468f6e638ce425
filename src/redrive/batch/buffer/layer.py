"""Layer: the retries of a send buffer, as a `Retry`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...backoff import doubling
from ...core.policy import RetryPolicy
from ...core.seconds import Seconds
from ...engine.owner import Behind, codes_of, owner
from ...engine.retry import DEFAULT, Retry, RetryLike
from ...native.grpc import deadline_exceeded
from .answer import Said

Item = TypeVar("Item")
ATTEMPTS, BASE, CAP = 4, 0.1, 10.0
"""Attempts, the first wait and the longest one in seconds. Each wait is up to half of it longer."""
TIMEOUT = 30.0
"""Seconds for one attempt."""


def standard(
    behind: Behind, codes: Sequence[str] | None, attempt_timeout: Seconds | None, attempts: int = ATTEMPTS, base: float = BASE
) -> Retry:
    """4 attempts, 100 ms doubling, up to half of it more, for the codes that nobody inside owns."""
    made = DEFAULT.using(
        RetryPolicy(attempts, base, CAP, jitter=0.0),
        on=owner(behind, codes, claims=True),
        backoff=doubling(base, cap=CAP),
        attempt_timeout=attempt_timeout,
    )
    return Retry(replace(made.settings, overdue=deadline_exceeded))


def layer(given: RetryLike | None, behind: Behind, codes: Sequence[str] | None, attempt_timeout: Seconds | None) -> Retry:
    """What `retry=` of a send buffer stands for: its own numbers, a policy's, or all that a `Retry` says."""
    if not isinstance(given, Retry):
        own = standard(behind, codes, attempt_timeout)
        return own if given is None else own.using(given, backoff=None)
    if behind or codes is not None:
        raise TypeError("a Retry has a rule of its own: leave behind= and codes= out, or give them to redrive.grpc.retry(...)")
    rule = codes_of(given)
    return given if rule is None else given.using(on=replace(rule, claims=True))


def sending(retry: Retry, send: Callable[[list[Item]], Awaitable[Said]]) -> tuple[Retry, Callable[[list[Item]], Awaitable[Said]]]:
    """The retry under the name of what it sends with, and what sends under it."""
    if not callable(send):
        raise TypeError(f"a SendBuffer takes an async function of a list of items, not {send!r}")

    async def attempt(items: list[Item]) -> Said:
        said: Any = send(list(items))  # a list of its own each time: one that empties it would have nothing to send again
        if not hasattr(type(said), "__await__"):
            raise TypeError(
                f"the send of a SendBuffer is async; {_name(send)} is plain: `async def`, or asyncio.to_thread inside one"
            )
        answer: Said = await said
        return answer

    named = retry if retry.operation else retry.using(operation=_name(send))
    return named, named(attempt)


def _name(send: Any) -> str:
    while hasattr(send, "func"):  # a partial
        send = send.func
    named = send if isinstance(getattr(send, "__qualname__", None), str) else type(send)
    return f"{named.__module__}.{named.__qualname__}"
