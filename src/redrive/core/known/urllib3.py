"""requests, and urllib3 beneath it."""

from __future__ import annotations

import re

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .httpx import tunnel
from .look import NEVER_SENT, NO_CONNECTION, TIMEOUT, Entry, Look, beneath, passed, read, spent, wrapping
from .status import answered, by_status

LAYER = "urllib3"


def _max_retries(error: Exception, look: Look) -> Fault:
    """As its reason. The name lies: `requests.get` raises it after one attempt, so the attempts are counted.

    urllib3 starts each further attempt by calling `urlopen` from within `urlopen`, and the traceback shows them.
    """
    fault = look.at(read(error, "reason"))
    attempts = sum(1 for _ in passed(error, "urllib3/connectionpool.py", "urlopen"))
    return spent(fault, LAYER) if attempts > 1 else fault


def _too_many(error: Exception, look: Look) -> Fault:
    """ "too many 503 error responses": the only trace that is left of the response."""
    found = re.search(r"too many (\d{3}) error responses", str(error))
    return by_status(int(found[1])) if found else PERMANENT


def _http_error(error: Exception, look: Look) -> Fault:
    response = read(error, "response")
    fault = answered(response, look) or UNKNOWN
    # With raise_on_status=False the last response comes back as if it were the first, but remembers.
    history = read(read(read(response, "raw"), "retries"), "history")
    retried = isinstance(history, tuple) and any(read(entry, "redirect_location") is None for entry in history)
    return spent(fault, LAYER) if retried else fault


def _proxy(error: Exception, look: Look) -> Fault:
    """Wrapped so only while there was no connection to the proxy yet."""
    return tunnel(beneath(error, "original_error") or error, look)


_REQUESTS: dict[str, Entry] = {
    "requests.HTTPError": _http_error,
    "requests.ConnectTimeout": wrapping(NO_CONNECTION, "args", "__cause__", "__context__"),
    "requests.Timeout": wrapping(TIMEOUT, "args", "__cause__", "__context__"),
    "requests.ConnectionError": wrapping(TRANSIENT, "args", "__cause__", "__context__"),
    "requests.ChunkedEncodingError": TRANSIENT,
    "requests.RetryError": wrapping(TRANSIENT, "args", "__cause__", "__context__"),
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
    "urllib3.MaxRetryError": _max_retries,
    "urllib3.ResponseError": _too_many,
    "urllib3.NewConnectionError": NEVER_SENT,
    "urllib3.ConnectTimeoutError": NO_CONNECTION,
    "urllib3.EmptyPoolError": NO_CONNECTION,
    "urllib3.TimeoutError": TIMEOUT,
    "urllib3.ProtocolError": TRANSIENT,
    "urllib3.IncompleteRead": TRANSIENT,
    "urllib3.InvalidChunkLength": TRANSIENT,
    "urllib3.SSLError": wrapping(TRANSIENT, "args", "__cause__", "__context__"),
    "urllib3.ProxyError": _proxy,
    "urllib3.LocationValueError": PERMANENT,
    "urllib3.DecodeError": PERMANENT,
    "urllib3.InvalidHeader": PERMANENT,
    "urllib3.UnrewindableBodyError": PERMANENT,
    "urllib3.HTTPError": UNKNOWN,
}
KNOWN: dict[str, Entry] = {**_REQUESTS, **_URLLIB3}
