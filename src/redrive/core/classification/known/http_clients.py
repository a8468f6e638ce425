"""HTTP clients: httpx, requests, urllib3, aiohttp and aiohttp-retry."""

from __future__ import annotations

import re
from dataclasses import replace

from ...fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .http_responses import fault_of_response, fault_of_status
from .inspect import (
    NEVER_SENT,
    NEVER_SENT_PERMANENT,
    NO_CONNECTION,
    TIMEOUT,
    Entry,
    FaultReader,
    Inspector,
    connect_fault,
    fault_of_inner,
    frames_of,
    inner_error,
    loop_counts,
    mark_spent,
    read,
    spent_if,
)

# httpx and httpx2 (two libraries with the same names and no common base), and httpcore.


def _httpx_status(error: Exception, inspector: Inspector) -> Fault:
    return fault_of_response(read(error, "response"), inspector) or UNKNOWN


def proxy_tunnel_fault(error: Exception, inspector: Inspector) -> Fault:
    """Classify an error of a proxy, by the status in its message. Nothing was sent."""
    match = re.search(r"\b([45]\d\d)\b", str(error))
    return fault_of_status(int(match[1]), sent=False) if match else NEVER_SENT


_HTTPX_TRANSPORT: dict[str, Entry] = {
    "ConnectTimeout": NO_CONNECTION,
    "PoolTimeout": NO_CONNECTION,
    "TimeoutException": TIMEOUT,
    "ConnectError": connect_fault("__cause__", "args", "__context__"),
    "NetworkError": TRANSIENT,
    "RemoteProtocolError": TRANSIENT,
    "ProxyError": proxy_tunnel_fault,
    "UnsupportedProtocol": PERMANENT,
    # A mistake of the caller or of the library, or an HTTP/2 connection that was just closed.
    "LocalProtocolError": UNKNOWN,
}
_HTTPX_CLIENT: dict[str, Entry] = {
    "HTTPStatusError": _httpx_status,
    "TransportError": TRANSIENT,
    "DecodingError": PERMANENT,
    "TooManyRedirects": PERMANENT,
    "InvalidURL": PERMANENT,
    "SSEError": PERMANENT,
}
_HTTPX: dict[str, Entry] = {
    **{
        f"{library}.{name}": entry
        for library in ("httpx", "httpx2")
        for name, entry in (_HTTPX_TRANSPORT | _HTTPX_CLIENT).items()
    },
    **{
        f"{library}.{name}": entry
        for library in ("httpcore", "httpcore2")
        for name, entry in _HTTPX_TRANSPORT.items()
    },
}


# requests and urllib3.


def _urllib3_max_retries(error: Exception, inspector: Inspector) -> Fault:
    """Classify by its reason, and count the attempts.

    Despite its name, `requests.get` raises it after one attempt. urllib3 makes each retry by a
    nested call of `urlopen`, so the traceback shows their number.
    """
    fault = inspector.classify(read(error, "reason"))
    attempts = sum(1 for _ in frames_of(error, "urllib3/connectionpool.py", "urlopen"))
    return mark_spent(fault, "urllib3") if attempts > 1 else fault


def _urllib3_too_many_responses(error: Exception, inspector: Inspector) -> Fault:
    """Classify by the status in "too many 503 error responses"."""
    match = re.search(r"too many (\d{3}) error responses", str(error))
    return fault_of_status(int(match[1])) if match else PERMANENT


def _requests_http_error(error: Exception, inspector: Inspector) -> Fault:
    response = read(error, "response")
    fault = fault_of_response(response, inspector) or UNKNOWN
    # With raise_on_status=False, the last response is returned. It has the history of retries.
    history = read(read(read(response, "raw"), "retries"), "history")
    was_retried = isinstance(history, tuple) and any(
        read(entry, "redirect_location") is None for entry in history
    )
    return mark_spent(fault, "urllib3") if was_retried else fault


def _urllib3_proxy(error: Exception, inspector: Inspector) -> Fault:
    """Classify an error that occurred before there was a connection to the proxy."""
    return proxy_tunnel_fault(inner_error(error, "original_error") or error, inspector)


_REQUESTS: dict[str, Entry] = {
    "requests.HTTPError": _requests_http_error,
    "requests.ConnectTimeout": fault_of_inner(NO_CONNECTION, "args", "__cause__", "__context__"),
    "requests.Timeout": fault_of_inner(TIMEOUT, "args", "__cause__", "__context__"),
    "requests.ConnectionError": fault_of_inner(TRANSIENT, "args", "__cause__", "__context__"),
    "requests.ChunkedEncodingError": TRANSIENT,
    "requests.RetryError": fault_of_inner(TRANSIENT, "args", "__cause__", "__context__"),
    "requests.RequestException": UNKNOWN,
    **dict.fromkeys(
        (
            "requests.InvalidJSONError",
            "requests.ContentDecodingError",
            "requests.TooManyRedirects",
            "requests.URLRequired",
            "requests.MissingSchema",
            "requests.InvalidSchema",
            "requests.InvalidURL",
            "requests.InvalidHeader",
            "requests.UnrewindableBodyError",
        ),
        PERMANENT,
    ),
}
_URLLIB3: dict[str, Entry] = {
    "urllib3.MaxRetryError": _urllib3_max_retries,
    "urllib3.ResponseError": _urllib3_too_many_responses,
    "urllib3.NewConnectionError": NEVER_SENT,
    "urllib3.ConnectTimeoutError": NO_CONNECTION,
    "urllib3.EmptyPoolError": NO_CONNECTION,
    "urllib3.TimeoutError": TIMEOUT,
    "urllib3.ProtocolError": TRANSIENT,
    "urllib3.IncompleteRead": TRANSIENT,
    "urllib3.InvalidChunkLength": TRANSIENT,
    "urllib3.SSLError": fault_of_inner(TRANSIENT, "args", "__cause__", "__context__"),
    "urllib3.ProxyError": _urllib3_proxy,
    "urllib3.LocationValueError": PERMANENT,
    "urllib3.DecodeError": PERMANENT,
    "urllib3.InvalidHeader": PERMANENT,
    "urllib3.UnrewindableBodyError": PERMANENT,
    "urllib3.HTTPError": UNKNOWN,
}


# aiohttp and aiohttp-retry.


def _aiohttp_response(error: Exception, inspector: Inspector) -> Fault:
    """Classify by the cause, or by the status.

    If the response was not valid HTTP, the status is 400, which no server sent.
    """
    cause = inspector.classify(read(error, "__cause__"))
    if cause.kind != "unknown":
        return cause
    return fault_of_response(error, inspector) or UNKNOWN


def _aiohttp_content_type(error: Exception, inspector: Inspector) -> Fault:
    """Classify a response that is not JSON: by its status, or as permanent."""
    fault = _aiohttp_response(error, inspector)
    return PERMANENT if fault.kind == "unknown" else fault


def _aiohttp_proxy(error: Exception, inspector: Inspector) -> Fault:
    return replace(_aiohttp_response(error, inspector), sent=False)


def _count_aiohttp_retries(entry: Entry) -> FaultReader:
    """Mark errors that aiohttp-retry retried. It makes three attempts by default."""

    def was_retried(error: Exception) -> bool:
        path, function = "aiohttp_retry/client.py", "_do_request"
        return max(loop_counts(error, path, function, "current_attempt"), default=0) > 1

    return spent_if(was_retried, entry, "aiohttp-retry")


_AIOHTTP_CLASSES: dict[str, Entry] = {
    "ClientResponseError": _aiohttp_response,
    "ContentTypeError": _aiohttp_content_type,
    "ClientHttpProxyError": _aiohttp_proxy,
    "TooManyRedirects": PERMANENT,
    "HttpProcessingError": TRANSIENT,
    "ClientConnectorError": connect_fault("os_error", "__cause__"),
    "ServerFingerprintMismatch": NEVER_SENT_PERMANENT,
    "ConnectionTimeoutError": NO_CONNECTION,
    "ServerTimeoutError": TIMEOUT,
    "ClientConnectionError": TRANSIENT,
    "ClientPayloadError": TRANSIENT,
    "InvalidURL": PERMANENT,
    "NonHttpUrlClientError": PERMANENT,
    "ClientError": UNKNOWN,
}
_AIOHTTP: dict[str, Entry] = {
    f"aiohttp.{name}": _count_aiohttp_retries(entry) for name, entry in _AIOHTTP_CLASSES.items()
}
FAMILIES: dict[str, dict[str, Entry]] = {
    "httpx": _HTTPX,
    "urllib3": {**_REQUESTS, **_URLLIB3},
    "asynchttp": _AIOHTTP,
}
