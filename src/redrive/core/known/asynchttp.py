"""aiohttp."""

from __future__ import annotations

from dataclasses import replace

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .look import NEVER_SENT_PERMANENT, NO_CONNECTION, TIMEOUT, Entry, Look, connecting, read
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


KNOWN: dict[str, Entry] = {
    "aiohttp.ClientResponseError": _response,
    "aiohttp.ContentTypeError": _content_type,
    "aiohttp.ClientHttpProxyError": _proxy,
    "aiohttp.TooManyRedirects": PERMANENT,
    "aiohttp.HttpProcessingError": TRANSIENT,
    "aiohttp.ClientConnectorError": connecting("os_error", "__cause__"),
    "aiohttp.ServerFingerprintMismatch": NEVER_SENT_PERMANENT,
    "aiohttp.ConnectionTimeoutError": NO_CONNECTION,
    "aiohttp.ServerTimeoutError": TIMEOUT,
    "aiohttp.ClientConnectionError": TRANSIENT,
    "aiohttp.ClientPayloadError": TRANSIENT,
    "aiohttp.InvalidURL": PERMANENT,
    "aiohttp.NonHttpUrlClientError": PERMANENT,
    "aiohttp.ClientError": UNKNOWN,
}
