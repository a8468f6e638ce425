"""gRPC status codes, of grpc and grpc.aio."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace

from ...fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .http_responses import pushback
from .inspect import THROTTLED, TIMEOUT, Entry, Inspector, read

PUSHBACK = "grpc-retry-pushback-ms"
CODES: dict[str, Fault] = {
    "UNAVAILABLE": TRANSIENT,
    # Like HTTP 500. The transport also reports a broken stream so.
    "INTERNAL": TRANSIENT,
    "ABORTED": TRANSIENT,
    "DEADLINE_EXCEEDED": TIMEOUT,
    "RESOURCE_EXHAUSTED": THROTTLED,
    # An exception in the handler of the server, or a status that is not known.
    "UNKNOWN": UNKNOWN,
}
PERMANENT_CODES = frozenset(
    """ALREADY_EXISTS CANCELLED DATA_LOSS FAILED_PRECONDITION INVALID_ARGUMENT NOT_FOUND
    OUT_OF_RANGE PERMISSION_DENIED UNAUTHENTICATED UNIMPLEMENTED""".split()
)
"""All other codes. None is "never sent": the message "failed to connect to all addresses" may come
from an upstream of the server, and grpcio 1.85 does not tell the two apart."""


def fault_of_code(code: object, trailers: object = None) -> Fault:
    """Return the fault of a status code, with the pushback of the server."""
    name = read(code, "name")
    if not isinstance(name, str):
        return UNKNOWN
    fault = CODES.get(name, PERMANENT)
    return _with_pushback(fault, trailers) if fault.retryable else fault


def fault_of_code_name(name: str, /) -> Fault | None:
    """Return the fault of a status code by its name. None if gRPC has no such error."""
    return PERMANENT if name in PERMANENT_CODES else CODES.get(name)


def fault_of_call(error: object) -> Fault:
    """Return the fault of a grpc.RpcError. Without a code it is unknown."""
    code = read(error, "code")
    if not callable(code):
        return UNKNOWN
    return fault_of_code(code(), _trailers(error))


def code_name_of(error: BaseException) -> str | None:
    """Return the name of the status code, if this is an error of grpcio that has one."""
    grpc = sys.modules.get("grpc")
    if grpc is None or not isinstance(error, getattr(grpc, "RpcError", ())):
        return None
    code = read(error, "code")
    try:
        name = read(code(), "name") if callable(code) else None
    except Exception:  # an object of another library may raise anything
        return None
    return name if isinstance(name, str) else None


def retryable_fault_of_call(error: object) -> Fault:
    """Return the fault of an error whose code the user wants to retry."""
    return _with_pushback(TRANSIENT, _trailers(error))


def _with_pushback(fault: Fault, trailers: object) -> Fault:
    """Return the fault with the delay that the server asks for. Permanent: do not retry."""
    text = _pushback(trailers)
    if text is None:
        return fault
    after = pushback(text)
    return PERMANENT if after is None else replace(fault, after=after)


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


def _rpc_error(error: Exception, inspector: Inspector) -> Fault:
    return fault_of_call(error)


FAMILIES: dict[str, dict[str, Entry]] = {
    "grpc": {"grpc.RpcError": _rpc_error, "grpc.FutureTimeoutError": TIMEOUT},
}
