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
NEVER = frozenset((405, 410, 501))
"""Statuses of something that serves this very address, and never like this: no use looking again. A 404 is none of them: many a
proxy says that of what is behind it and has not come up yet."""
OPERATION = "wait_until_ready"


def looking(within: Seconds, make: Callable[..., Any], attempt: Callable[..., Any], /) -> Callable[..., Any]:
    """A loop that looks until it is ready: soon at first, then every two seconds."""
    limit = positive("within", within)
    policy = RetryPolicy(max_attempts=ENDLESS, backoff_base=0.1, backoff_max=2.0, jitter=0.1, timeout=limit)
    retry: Retry = DEFAULT.using(policy, on=(_coming, httpx2.HTTPError), attempt_timeout=min(ONE, limit), operation=OPERATION)
    return Layer(retry, make, attempt).loop(OPERATION, True, False, overdue(httpx2))


def _coming(error: Exception) -> bool | None:
    return False if isinstance(error, httpx2.HTTPStatusError) and error.response.status_code in NEVER else None


def not_ready(url: str, error: Exception, /) -> NotReady:
    """What the last look says of the service."""
    tried = outcome(error)
    looks = f" ({tried.attempts} requests in {span(tried.elapsed)})" if tried is not None else ""
    if not isinstance(error, httpx2.HTTPStatusError):
        said = f"it could not be reached: {type(error).__name__}: {error}".rstrip(": ")
        return NotReady(f"{url} is unavailable{looks}: {said}", unavailable=True)
    status = error.response.status_code
    if status in AWAY:
        return NotReady(f"{url} is unavailable{looks}: it returns {status}", unavailable=True)
    more = " each time; check the path" if status == 404 else ""
    more = "; waiting does not help" if status in NEVER else more
    return NotReady(f"{url} failed{looks}: it is reachable, and returns {status}{more}", unavailable=False)
