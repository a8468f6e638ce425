"""azure-storage: blobs, queues, files and the data lake share one type of retry policy."""

from __future__ import annotations

import random
from typing import Any

from ..core.classification.known.http_responses import retry_after
from ..core.policy import RetryPolicy
from .mapping import ClientMapping, Mapped, policy_wait_range

AZURE = ClientMapping(
    "azure",
    templates={
        "max_attempts": "retry_total = retry_connect = retry_read = retry_status = {retries}",
        "backoff_base": "get_backoff_time()",
        "backoff_max": "get_backoff_time()",
        "jitter": "get_backoff_time()",
    },
    wait_range=policy_wait_range,
    notes=(
        (
            "Retry-After is a floor where the answer is one that it retries: 408 and 5xx "
            "but 501 and 505."
        ),
        "429 is not retried.",
        "For the plain clients: those of azure.storage.blob.aio take another kind of object.",
        (
            "A download that breaks in the middle is fetched 3 times, 1 s apart, by a loop "
            "of its own; the backend azure has it off."
        ),
    ),
    package="azure-storage-blob",
)


def azure(policy: RetryPolicy, /) -> Mapped[dict[str, Any]]:
    """Return arguments for `BlobServiceClient(url, **value)` and other clients.

    Args:
        policy: The policy.

    Returns:
        The arguments, and the fields that they do not carry.
    """
    with AZURE.importing():
        from azure.storage.blob import ExponentialRetry  # noqa: PLC0415  # optional dependency

    class PolicyRetry(ExponentialRetry):
        """Azure's loop with the waits of the policy. Its own are 15 + 3**n s, without a limit."""

        def get_backoff_time(self, settings: dict[str, Any]) -> float:
            """Return the seconds to wait after failed attempt `settings["count"]`, from 1."""
            wait = policy.wait(settings["count"], random.random())
            response = _last_response(settings["history"])
            return max(wait, retry_after(getattr(response, "headers", None)) or 0.0)

        def sleep(self, settings: dict[str, Any], transport: Any) -> None:
            """Wait, after releasing the connection of the last response.

            Azure keeps it during the wait if the request was a download.
            """
            _close_last_response(settings["history"])
            super().sleep(settings, transport)  # type: ignore[no-untyped-call]  # no types

    AZURE.check(policy)
    retries = policy.max_attempts - 1
    # Each of the three limits is 3 by default, and the smallest one applies.
    retry = PolicyRetry(
        retry_total=retries, retry_connect=retries, retry_read=retries, retry_status=retries
    )
    return AZURE.to_mapped(policy, {"retry_policy": retry})


def _close_last_response(history: list[Any]) -> None:
    # The response of requests, which owns the connection.
    response = getattr(_last_response(history), "internal_response", None)
    close = getattr(response, "close", None)
    if callable(close):
        close()


def _last_response(history: list[Any]) -> Any:
    """Return the last response. None after an error without a response."""
    return getattr(history[-1], "http_response", None) if history else None
