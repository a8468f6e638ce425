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
    """Around a call: 3 attempts, 50 and 100 ms apart, for the codes that `behind` (the channel's options) does not own.

    `await rpc.acall(stub.Get, request, timeout=30)`, `rpc.call(...)` for a sync channel. A request stream is a list, or a
    function that returns a new iterator for each attempt. Of a response stream the opening is retried, up to its first message.
    codes: which ones (default UNAVAILABLE, INTERNAL and DEADLINE_EXCEEDED, without the channel's); one that the channel owns is
    refused. attempt_timeout: seconds for one attempt; async ones are cancelled, plain ones need their own `timeout=`.
    """
    made = DEFAULT.using(policy or CALL, on=owner(behind, codes), attempt_timeout=attempt_timeout)
    return Retry(replace(made.settings, overdue=deadline_exceeded))
