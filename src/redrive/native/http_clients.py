"""HTTP clients: urllib3, requests on top of it, httpx and httpx2."""

from __future__ import annotations

import random
import time
from itertools import takewhile
from typing import TYPE_CHECKING

from ..core.classification.known.http_responses import STATUS_KINDS, retry_after
from ..core.fault import RETRYABLE
from ..core.policy import RetryPolicy, exponential_wait
from .mapping import ClientMapping, Mapped, policy_wait_range

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, Retry

HTTPX_FIRST_WAIT_SECONDS = 0.5
RETRYABLE_STATUSES = frozenset(status for status, kind in STATUS_KINDS.items() if kind in RETRYABLE)
URLLIB3 = ClientMapping(
    "urllib3",
    templates={
        "max_attempts": "Retry(total={retries}, other=0)",
        "backoff_base": "get_backoff_time()",
        "backoff_max": "get_backoff_time()",
        "jitter": "get_backoff_time()",
    },
    wait_range=policy_wait_range,
    notes=(
        "Retry-After is a minimum. The wait is the larger of the two.",
        (
            "Retries GET, HEAD, PUT, DELETE, OPTIONS and TRACE. Other methods are retried "
            "only if no connection was made."
        ),
        "Redirects that urllib3 follows count as attempts. Redirects that requests follows do not.",
        "The last response is returned with any status. Call raise_for_status().",
        "A body that breaks while it is read is not fetched again.",
    ),
    package="urllib3",
)


def urllib3(policy: RetryPolicy, /) -> Mapped[Retry]:
    """Return a `urllib3.Retry`, for urllib3 and requests.

    Pass it as `PoolManager(retries=value)` or `requests.adapters.HTTPAdapter(max_retries=value)`.

    Args:
        policy: The policy.

    Returns:
        The object, and the fields that it does not carry.
    """
    with URLLIB3.importing():
        from urllib3 import Retry  # noqa: PLC0415  # optional dependency

    class PolicyRetry(Retry):
        """The loop of urllib3 with the waits of the policy. urllib3 does not wait at first."""

        RETRY_AFTER_STATUS_CODES = frozenset()  # Only statuses of the standard rule.

        def get_backoff_time(self) -> float:
            """Return the seconds to wait after the failed attempts since the last redirect."""
            since_redirect = takewhile(
                lambda entry: entry.redirect_location is None, reversed(self.history)
            )
            failed = sum(1 for _ in since_redirect)
            return policy.wait(failed, random.random()) if failed else 0.0

        def sleep(self, response: BaseHTTPResponse | None = None) -> None:
            """Wait as long as the policy or the server asks, whichever is longer."""
            server_wait = None if response is None else retry_after(response.headers)
            time.sleep(max(self.get_backoff_time(), server_wait or 0.0))

    URLLIB3.check(policy)
    retry = PolicyRetry(
        total=policy.max_attempts - 1,
        other=0,  # Errors of certificates and proxies, which are not transient.
        status_forcelist=RETRYABLE_STATUSES,
        raise_on_status=False,  # The caller gets the last response.
    )
    return URLLIB3.to_mapped(policy, retry)


def _httpx_wait_range(_policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    wait = 0.0 if attempt == 1 else exponential_wait(HTTPX_FIRST_WAIT_SECONDS, attempt - 1)
    return wait, wait


HTTPX = ClientMapping(
    "httpx",
    templates={"max_attempts": "HTTPTransport(retries={retries})"},
    wait_range=_httpx_wait_range,
    notes=(
        (
            "Only connecting is retried, not a status, a reset or a later timeout. "
            "redrive.http retries all of them."
        ),
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
    return HTTPX.to_mapped(policy, {"retries": policy.max_attempts - 1})
