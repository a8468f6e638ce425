"""HTTP answers: what a status means, and what else the response says."""

from __future__ import annotations

from ..fault import Fault, Kind
from ..retry_after import retry_after
from .look import Look, read, spent, whole

KINDS: dict[int, Kind] = {
    408: "timeout",
    425: "transient",
    429: "throttled",
    500: "transient",
    501: "permanent",
    502: "transient",
    503: "transient",
    504: "timeout",
    505: "permanent",
    511: "permanent",
    529: "throttled",  # "overloaded", at Anthropic and elsewhere
}


def by_status(status: int, after: float | None = None, *, sent: bool = True) -> Fault:
    """What a status means. 503 with a time to come back is throttling, and 409 with one is work that is under way already: our
    middleware and others say so of an idempotency key. Not listed: 3xx, 4xx permanent, 5xx unknown."""
    kind = KINDS.get(status) or ("permanent" if 300 <= status < 500 else "unknown")
    if status == 503 and after is not None:
        kind = "throttled"
    elif status == 409 and after is not None:
        kind = "transient"
    return Fault(kind, after, sent, status=status)


def answered(response: object, look: Look) -> Fault | None:
    """What a response object means, by its status and headers; None where it has no status."""
    status = whole(read(response, "status_code"))
    if status is None:
        status = whole(read(response, "status"))
    if status is None:
        return None
    fault = by_status(status, retry_after(read(response, "headers"), now=look.now))
    extensions = read(response, "extensions")
    if isinstance(extensions, dict) and read(extensions.get("redrive"), "spent") is True:
        return spent(fault, "redrive.http")  # its transport gives back the last answer, on which retries were spent
    return fault
