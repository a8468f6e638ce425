"""urllib3, and requests on top of it."""

from __future__ import annotations

import random
import time
from itertools import takewhile
from typing import TYPE_CHECKING

from ..core.fault import RETRYABLE
from ..core.known.status import KINDS
from ..core.policy import RetryPolicy
from ..core.retry_after import retry_after
from .mapped import Client, Mapped, as_asked

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, Retry

STATUSES = frozenset(status for status, kind in KINDS.items() if kind in RETRYABLE)
URLLIB3 = Client(
    "urllib3",
    words={
        "max_attempts": "Retry(total={retries}, other=0)",
        "backoff_base": "get_backoff_time()",
        "backoff_max": "get_backoff_time()",
        "jitter": "get_backoff_time()",
    },
    waits=as_asked,
    notes=(
        "Retry-After is a minimum. The wait is the larger of the two.",
        "Retries GET, HEAD, PUT, DELETE, OPTIONS and TRACE. Other methods are retried only if no connection was made.",
        "Redirects that urllib3 follows count as attempts. Redirects that requests follows do not.",
        "The last response is returned with any status. Call raise_for_status().",
        "A body that breaks while it is read is not fetched again.",
    ),
)


def urllib3(policy: RetryPolicy, /) -> Mapped[Retry]:
    """Return a `urllib3.Retry`, for urllib3 and requests.

    Pass it as `PoolManager(retries=value)` or `requests.adapters.HTTPAdapter(max_retries=value)`.

    Args:
        policy: The policy.

    Returns:
        The object, and the fields that it does not carry.
    """
    from urllib3 import Retry  # noqa: PLC0415  # whoever maps to urllib3 has it

    class PolicyRetry(Retry):
        """Its loop with the policy's waits. Its own formula has no wait before the first retry."""

        RETRY_AFTER_STATUS_CODES = frozenset()  # a status that the standard rule does not retry stays so

        def get_backoff_time(self) -> float:
            """Seconds after the attempts that failed since the last redirect."""
            failed = sum(1 for _ in takewhile(lambda entry: entry.redirect_location is None, reversed(self.history)))
            return policy.wait(failed, random.random()) if failed else 0.0

        def sleep(self, response: BaseHTTPResponse | None = None) -> None:
            """The longer of the policy's wait and the server's."""
            asked = None if response is None else retry_after(response.headers)
            time.sleep(max(self.get_backoff_time(), asked or 0.0))

    URLLIB3.check(policy)
    # other: certificates and proxies, which don't get better. raise_on_status would hide the answer.
    retry = PolicyRetry(total=policy.max_attempts - 1, other=0, status_forcelist=STATUSES, raise_on_status=False)
    return URLLIB3.mapped(policy, retry)
