"""httpx and httpx2: what their transports can do by themselves, which is to connect again."""

from __future__ import annotations

from ..core.policy import RetryPolicy, doubled
from .mapped import Client, Mapped


def _waits(_policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    wait = 0.0 if attempt == 1 else doubled(0.5, attempt - 1)
    return wait, wait


HTTPX = Client(
    "httpx",
    words={"max_attempts": "HTTPTransport(retries={retries})"},
    waits=_waits,
    notes=(
        "Only connecting is tried again: no status, no reset and no time-out after that. All of them: redrive.http.",
        "It waits by its own rule: 0, 0.5, 1, 2 s …, without a limit.",
        "Each attempt is bounded by the connect time-out of the client.",
    ),
)


def httpx(policy: RetryPolicy, /) -> Mapped[dict[str, int]]:
    """Return arguments for `HTTPTransport(**value)` and `AsyncHTTPTransport(**value)`.

    They work with httpx and httpx2.

    Args:
        policy: The policy.

    Returns:
        The arguments, and the fields that they do not carry.
    """
    HTTPX.check(policy)
    return HTTPX.mapped(policy, {"retries": policy.max_attempts - 1})
