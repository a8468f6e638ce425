"""azure-storage: blobs, queues, files and the data lake share one kind of retry policy."""

from __future__ import annotations

import random
from typing import Any

from ..core.policy import RetryPolicy
from ..core.retry_after import retry_after
from .mapped import Client, Mapped, as_asked

AZURE = Client(
    "azure",
    words={
        "max_attempts": "retry_total = retry_connect = retry_read = retry_status = {retries}",
        "backoff_base": "get_backoff_time()",
        "backoff_max": "get_backoff_time()",
        "jitter": "get_backoff_time()",
    },
    waits=as_asked,
    notes=(
        "Retry-After is a floor where the answer is one that it retries: 408 and 5xx but 501 and 505.",
        "429 is not retried.",
        "For the plain clients: those of azure.storage.blob.aio take another kind of object.",
        "A download that breaks in the middle is fetched 3 times, 1 s apart, by a loop of its own; the backend azure has it off.",
    ),
)


def azure(policy: RetryPolicy, /) -> Mapped[dict[str, Any]]:
    """Return arguments for `BlobServiceClient(url, **value)` and other clients of azure-storage-blob.

    Args:
        policy: The policy.

    Returns:
        The arguments, and the fields that they do not carry.
    """
    from azure.storage.blob import ExponentialRetry  # noqa: PLC0415  # whoever maps to azure has it

    class PolicyRetry(ExponentialRetry):
        """Its loop with the policy's waits. Its own formula adds: 15 + 3**n, beyond any backoff_max."""

        def get_backoff_time(self, settings: dict[str, Any]) -> float:
            """Seconds after failed attempt `settings["count"]`, which counts from 1."""
            wait = policy.wait(settings["count"], random.random())
            return max(wait, _asked(settings["history"]))

        def sleep(self, settings: dict[str, Any], transport: Any) -> None:
            """The wait; not with the last answer's connection in hand, which azure forgets where a download was answered."""
            _let_go(settings["history"])
            super().sleep(settings, transport)  # type: ignore[no-untyped-call]  # azure has no types there

    AZURE.check(policy)
    retries = policy.max_attempts - 1
    # Each of the three is 3 unless it is said, and the smallest one decides.
    retry = PolicyRetry(retry_total=retries, retry_connect=retries, retry_read=retries, retry_status=retries)
    return AZURE.mapped(policy, {"retry_policy": retry})


def _asked(history: list[Any]) -> float:
    """What the last answer asked for."""
    return retry_after(getattr(_answer(history), "headers", None)) or 0.0


def _let_go(history: list[Any]) -> None:
    given = getattr(_answer(history), "internal_response", None)  # of requests, which has the connection
    close = getattr(given, "close", None)
    if callable(close):
        close()


def _answer(history: list[Any]) -> Any:
    """The last one; None where there was an error instead."""
    return getattr(history[-1], "http_response", None) if history else None
