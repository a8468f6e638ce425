"""elasticsearch and its transport, and opensearch-py, which came from it."""

from __future__ import annotations

from collections.abc import Collection

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from ..retry_after import retry_after
from .look import TIMEOUT, Entry, Judge, Look, passed, read, spent, whole
from .status import by_status

RETRIED = (429, 502, 503, 504)
"""Statuses that its transport retries by default, three times."""


def _api(error: Exception, look: Look) -> Fault:
    meta = read(error, "meta")
    status = whole(read(meta, "status"))
    if status is None:
        status = whole(read(error, "status_code"))
    if status is None:
        return UNKNOWN
    fault = by_status(status, retry_after(read(meta, "headers"), now=look.now))
    return spent(fault, "elasticsearch") if _retries(error, status) else fault


def _retries(error: Exception, status: int) -> bool:
    """Whether the transport retried this status: the error does not say; the client that raised it knows its settings."""
    for frame in passed(error, "elasticsearch/", "_perform_request"):
        client = frame.f_locals.get("self")
        transport = read(client, "_transport")
        most = whole(read(client, "_max_retries"))
        most = whole(read(transport, "max_retries")) if most is None else most
        listed = read(client, "_retry_on_status")
        if not isinstance(listed, Collection):
            listed = read(transport, "retry_on_status")
        return bool(most) and status in (listed if isinstance(listed, Collection) else RETRIED)
    return False


def _counted(entry: Fault) -> Judge:
    """The transport keeps the errors of earlier attempts in the last one."""

    def judge(error: Exception, look: Look) -> Fault:
        return spent(entry, "elasticsearch") if read(error, "errors") else entry

    return judge


_TRANSPORT: dict[str, Entry] = {
    "ApiError": _api,
    "ConnectionError": _counted(TRANSIENT),
    "ConnectionTimeout": _counted(TIMEOUT),
    "TlsError": PERMANENT,
    "SerializationError": PERMANENT,
    "SniffingError": TRANSIENT,
    "TransportError": UNKNOWN,
}
KNOWN: dict[str, Entry] = {
    **{f"{library}.{name}": entry for library in ("elastic_transport", "elasticsearch") for name, entry in _TRANSPORT.items()},
    "opensearchpy.TransportError": _api,
    "opensearchpy.ConnectionError": TRANSIENT,
    "opensearchpy.ConnectionTimeout": TIMEOUT,
    "opensearchpy.SSLError": PERMANENT,
    "opensearchpy.SerializationError": PERMANENT,
    "opensearchpy.ImproperlyConfigured": PERMANENT,
}
