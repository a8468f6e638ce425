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
        "Only connecting is retried, not a status, a reset or a later timeout. redrive.http retries all of them.",
        "It uses its own waits of 0, 0.5, 1, 2 s …, without a limit.",
        "The connect timeout of the client limits each attempt.",
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
