"""Call: the layer around one call. It tries again what the channel does not own, and leaves a send buffer its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.policy import RetryPolicy
from ..core.seconds import Seconds
from ..engine.owner import Behind, owner
from ..engine.retry import DEFAULT, Retry
from ..native.grpc import deadline_exceeded

CALL = RetryPolicy(max_attempts=3, backoff_base=0.05, backoff_max=1.0, jitter=0.0)
TIMEOUT = 30.0


def retry(
    policy: RetryPolicy | None = None,
    /,
    *,
    behind: Behind = (),
    codes: Sequence[str] | None = None,
    attempt_timeout: Seconds | None = TIMEOUT,
) -> Retry:
    """Return retries around a call, for the codes that the channel does not retry.

    Use `await rpc.acall(stub.Get, request, timeout=30)`, or `rpc.call(...)` on a sync channel. Pass
    a request stream as a list, or as a function that returns a new iterator. Of a response stream,
    only the opening is retried, up to the first message.

    Args:
        policy: Default: 3 attempts, 50 ms and 100 ms apart.
        behind: Options of the channel. Their codes are left to the channel.
        codes: Status codes to retry. Default: UNAVAILABLE, INTERNAL and DEADLINE_EXCEEDED, without
            those of the channel.
        attempt_timeout: Seconds for one attempt. Async attempts are cancelled. Sync calls need
            their own `timeout=`.

    Returns:
        A `Retry`.

    Raises:
        ValueError: A code is retried by the channel too.
    """
    made = DEFAULT.using(policy or CALL, on=owner(behind, codes), attempt_timeout=attempt_timeout)
    return Retry(replace(made.settings, overdue=deadline_exceeded))
