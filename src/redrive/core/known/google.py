"""google-api-core, over REST and gRPC, and google-auth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from ..retry_after import retry_after
from .grpc import by_code, of_call
from .look import TIMEOUT, Entry, Look, read, spent, whole
from .status import by_status


def _call_error(error: Exception, look: Look) -> Fault:
    """By the gRPC code where there is one: ABORTED may be tried again, the 409 that it is mapped to may not."""
    fault = _fault(error, look)
    wanted = _retry_info(read(error, "details"))
    return replace(fault, after=wanted) if wanted is not None and fault.retryable else fault


def _fault(error: Exception, look: Look) -> Fault:
    response = read(error, "response")
    if callable(read(response, "trailing_metadata")):
        return of_call(response)
    status = whole(read(error, "code"))
    after = retry_after(read(response, "headers"), now=look.now)
    by_grpc = by_code(read(error, "grpc_status_code"))
    if by_grpc.kind != "unknown":
        return replace(by_grpc, after=after, status=status)
    return UNKNOWN if status is None else by_status(status, after)


def _retry_info(details: object) -> float | None:
    """The delay of a google.rpc.RetryInfo among the details of an error."""
    for detail in details if isinstance(details, Iterable) else ():
        delay = read(detail, "retry_delay")
        seconds, nanos = whole(read(delay, "seconds")), whole(read(delay, "nanos"))
        if seconds is not None and nanos is not None:
            return max(0.0, seconds + nanos / 1e9)
    return None


def _retry_error(error: Exception, look: Look) -> Fault:
    """Its time is used up; how many attempts that were, it does not say."""
    return spent(look.at(read(error, "cause")), "google-api-core")


def _auth(error: Exception, look: Look) -> Fault:
    return TRANSIENT if read(error, "retryable") is True else PERMANENT


KNOWN: dict[str, Entry] = {
    "google.RetryError": _retry_error,
    "google.GoogleAPICallError": _call_error,
    "google.TransportError": TRANSIENT,
    "google.TimeoutError": TIMEOUT,
    "google.GoogleAuthError": _auth,
}
