"""aiohttp, and aiohttp-retry on top of it: by status where the server sent one, else by the kind of connection failure."""

from __future__ import annotations

from dataclasses import replace

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .look import NEVER_SENT_PERMANENT, NO_CONNECTION, TIMEOUT, Entry, Judge, Look, connecting, passed, read, spent, whole
from .status import answered


def _response(error: Exception, look: Look) -> Fault:
    """By its status, except that aiohttp says 400 where the *answer* was not HTTP: a status that no server sent."""
    unreadable = look.at(read(error, "__cause__"))
    if unreadable.kind != "unknown":
        return unreadable
    return answered(error, look) or UNKNOWN


def _content_type(error: Exception, look: Look) -> Fault:
    """Asked for JSON and got something else: the status decides, where there was an error status."""
    fault = _response(error, look)
    return PERMANENT if fault.kind == "unknown" else fault


def _proxy(error: Exception, look: Look) -> Fault:
    return replace(_response(error, look), sent=False)


def _counted(entry: Entry) -> Judge:
    """aiohttp-retry makes three attempts unless told otherwise; only the frame of its loop has the count."""

    def judge(error: Exception, look: Look) -> Fault:
        fault = entry if isinstance(entry, Fault) else entry(error, look)
        counts = [frame.f_locals.get("current_attempt") for frame in passed(error, "aiohttp_retry/client.py", "_do_request")]
        return spent(fault, "aiohttp-retry") if any((whole(count) or 0) > 1 for count in counts) else fault

    return judge


_ERRORS: dict[str, Entry] = {
    "ClientResponseError": _response,
    "ContentTypeError": _content_type,
    "ClientHttpProxyError": _proxy,
    "TooManyRedirects": PERMANENT,
    "HttpProcessingError": TRANSIENT,
    "ClientConnectorError": connecting("os_error", "__cause__"),
    "ServerFingerprintMismatch": NEVER_SENT_PERMANENT,
    "ConnectionTimeoutError": NO_CONNECTION,
    "ServerTimeoutError": TIMEOUT,
    "ClientConnectionError": TRANSIENT,
    "ClientPayloadError": TRANSIENT,
    "InvalidURL": PERMANENT,
    "NonHttpUrlClientError": PERMANENT,
    "ClientError": UNKNOWN,
}
KNOWN: dict[str, Entry] = {f"aiohttp.{name}": _counted(entry) for name, entry in _ERRORS.items()}
