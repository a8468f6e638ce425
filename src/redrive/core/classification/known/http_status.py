"""HTTP responses: the fault of a status, with Retry-After."""

from __future__ import annotations

from ...fault import UNKNOWN, Fault, Kind
from ..retry_after import retry_after
from .inspect import FaultReader, Inspector, as_int, mark_spent, read

STATUS_KINDS: dict[int, Kind] = {
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
    529: "throttled",  # "overloaded", of Anthropic and others
}


def fault_of_status(status: int, after: float | None = None, *, sent: bool = True) -> Fault:
    """Return the fault of a status.

    Statuses that are not listed are permanent (3xx, 4xx) or unknown (5xx). With Retry-After, 503 is
    throttling, and 409 is an idempotency key whose work is running, as our middleware reports it.
    """
    kind = STATUS_KINDS.get(status) or ("permanent" if 300 <= status < 500 else "unknown")
    if status == 503 and after is not None:
        kind = "throttled"
    elif status == 409 and after is not None:
        kind = "transient"
    return Fault(kind, after, sent, status=status)


def fault_of_response(response: object, inspector: Inspector) -> Fault | None:
    """Return the fault of a response object. None if it has no status."""
    status = as_int(read(response, "status_code"))
    if status is None:
        status = as_int(read(response, "status"))
    if status is None:
        return None
    fault = fault_of_status(status, retry_after(read(response, "headers"), now=inspector.now))
    extensions = read(response, "extensions")
    if isinstance(extensions, dict) and read(extensions.get("redrive"), "spent") is True:
        return mark_spent(fault, "redrive.http")  # the last response, after our transport's retries
    return fault


def status_in(name: str, /) -> FaultReader:
    """Return a reader of the status in this attribute, and of Retry-After in `headers`."""

    def read_fault(error: Exception, inspector: Inspector) -> Fault:
        status = as_int(read(error, name))
        if status is None:
            return UNKNOWN
        return fault_of_status(status, retry_after(read(error, "headers"), now=inspector.now))

    return read_fault
