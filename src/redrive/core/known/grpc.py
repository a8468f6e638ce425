"""gRPC status codes, plain and aio."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from ..retry_after import pushback
from .look import THROTTLED, TIMEOUT, Entry, Look, read

PUSHBACK = "grpc-retry-pushback-ms"
CODES: dict[str, Fault] = {
    "UNAVAILABLE": TRANSIENT,
    # What HTTP says as 500, and what the transport says of a broken stream.
    "INTERNAL": TRANSIENT,
    "ABORTED": TRANSIENT,
    "DEADLINE_EXCEEDED": TIMEOUT,
    "RESOURCE_EXHAUSTED": THROTTLED,
    # An exception in the server's handler, or a status from nowhere.
    "UNKNOWN": UNKNOWN,
}
REFUSED = frozenset((
    "ALREADY_EXISTS", "CANCELLED", "DATA_LOSS", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE",
    "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED",
))  # fmt: skip
"""Every other code is permanent. None is "never sent": the words "failed to connect to all addresses" may as well be
those of the server's own upstream, passed on, and in grpcio 1.85 nothing tells the two apart."""


def by_code(code: object, trailers: object = None) -> Fault:
    """What a status code means, with what the server said about coming back."""
    name = read(code, "name")
    if not isinstance(name, str):
        return UNKNOWN
    fault = CODES.get(name, PERMANENT)
    said = _pushback(trailers) if fault.retryable else None
    if said is None:
        return fault
    after = pushback(said)
    return PERMANENT if after is None else replace(fault, after=after)


def by_name(name: str, /) -> Fault | None:
    """What the name of a status code means; None: gRPC has no such code, or it is OK."""
    return PERMANENT if name in REFUSED else CODES.get(name)


def of_call(error: object) -> Fault:
    """What a grpc.RpcError means. A bare one, without a code, is unknown."""
    code = read(error, "code")
    if not callable(code):
        return UNKNOWN
    return by_code(code(), _trailers(error))


def code_of(error: BaseException) -> str | None:
    """The name of the status code, where it is an error of grpcio's and has one."""
    grpc = sys.modules.get("grpc")
    if grpc is None or not isinstance(error, getattr(grpc, "RpcError", ())):
        return None
    code = read(error, "code")
    try:
        name = read(code(), "name") if callable(code) else None
    except Exception:  # a foreign object may raise anything
        return None
    return name if isinstance(name, str) else None


def worth_it(error: object) -> Fault:
    """What an error means whose code is to be tried again, whatever the code: the server's own word still holds."""
    said = _pushback(_trailers(error))
    if said is None:
        return TRANSIENT
    after = pushback(said)
    return PERMANENT if after is None else replace(TRANSIENT, after=after)


def _trailers(error: object) -> object:
    trailing = read(error, "trailing_metadata")
    return trailing() if callable(trailing) else None


def _pushback(trailers: object) -> str | None:
    if not isinstance(trailers, Iterable):
        return None
    for key, value in trailers:
        if key == PUSHBACK:
            return value if isinstance(value, str) else ""
    return None


def _rpc_error(error: Exception, look: Look) -> Fault:
    return of_call(error)


KNOWN: dict[str, Entry] = {"grpc.RpcError": _rpc_error, "grpc.FutureTimeoutError": TIMEOUT}
