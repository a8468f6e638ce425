"""Ready: waiting for a service that is starting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2

from ..core.policy import RetryPolicy
from ..core.seconds import Seconds, positive
from ..core.span import span
from ..engine.nesting import outcome
from ..engine.retry import DEFAULT, Retry
from ..errors import NotReady
from .layer import Layer
from .told import overdue

ONE = 5.0
"""Seconds for one look, at most."""
ENDLESS = 1_000_000
AWAY = frozenset((429, 502, 503, 504))
"""Statuses that say: not now. All others say that it is there, and does not work."""
OPERATION = "wait_until_ready"


def looking(within: Seconds, make: Callable[..., Any], attempt: Callable[..., Any], /) -> Callable[..., Any]:
    """A loop that looks until it is ready: soon at first, then every two seconds."""
    limit = positive("within", within)
    policy = RetryPolicy(max_attempts=ENDLESS, backoff_base=0.1, backoff_max=2.0, jitter=0.1, timeout=limit)
    retry: Retry = DEFAULT.using(policy, on=httpx2.HTTPError, attempt_timeout=min(ONE, limit), operation=OPERATION)
    return Layer(retry, make, attempt).loop(OPERATION, True, False, overdue(httpx2))


def not_ready(url: str, error: Exception, /) -> NotReady:
    """What the last look says of the service."""
    tried = outcome(error)
    looks = f" ({tried.attempts} looks in {span(tried.elapsed)})" if tried is not None else ""
    if not isinstance(error, httpx2.HTTPStatusError):
        said = f"it could not be reached: {type(error).__name__}: {error}".rstrip(": ")
        return NotReady(f"{url} is unavailable{looks}: {said}", unavailable=True)
    status = error.response.status_code
    if status in AWAY:
        return NotReady(f"{url} is unavailable{looks}: it answers {status}", unavailable=True)
    return NotReady(f"{url} failed{looks}: it is there, and answers {status}", unavailable=False)
