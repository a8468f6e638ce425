"""HTTP responses: the fault of a status, and Retry-After and similar headers.

Functions on headers never raise.
"""

from __future__ import annotations

import math
import re
import sys
from datetime import datetime, timezone

from ...clock import SYSTEM
from ...fault import UNKNOWN, Fault, Kind
from .inspect import FaultReader, Inspector, as_int, mark_spent, read

MILLISECOND_HEADERS = ("retry-after-ms", "x-ms-retry-after-ms")
"""Headers of OpenAI and Azure, with the exact value that Retry-After rounds."""
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")


def retry_after(headers: object, *, now: datetime | None = None) -> float | None:
    """Return the seconds to wait by these response headers. None if they have no valid value.

    A date is compared with the Date header of the response, because clocks differ. Without one, it
    is compared with `now` or the system clock.
    """
    for name in MILLISECOND_HEADERS:
        exact = _number(header(headers, name))
        if exact is not None:
            return exact / 1000
    text = header(headers, "retry-after")
    seconds = _number(text)
    if seconds is not None:
        return seconds
    retry_at = http_date(text)
    if retry_at is None:
        return None
    start = http_date(header(headers, "date")) or now or SYSTEM.now()
    return seconds_until(retry_at, start)


def seconds_until(end: datetime, start: datetime) -> float:
    """Return the seconds from `start` to `end`, at least 0. A naive datetime is UTC."""
    return max(0.0, (_aware(end) - _aware(start)).total_seconds())


def pushback(text: str | None) -> float | None:
    """Return the seconds of `grpc-retry-pushback-ms`. None: do not retry (gRFC A6)."""
    if text is None or not re.fullmatch(r"[0-9]{1,15}", text):
        return None
    return int(text) / 1000


def http_date(text: str | None) -> datetime | None:
    """Return the timestamp of an HTTP-date. None if it is not one."""
    if text is None or ":" not in text:
        return None
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  # 10 ms, rarely used

    try:
        return _aware(parsedate_to_datetime(text))
    except Exception:  # invalid text raises more than the documented ValueError
        return None


def header(headers: object, name: str) -> str | None:
    """Return a header by its lower-case name, from the mapping of any library."""
    for spelling in (name, name.title()):
        try:
            value = headers.get(spelling)  # type: ignore[attr-defined]  # an AttributeError is caught
            if isinstance(value, bytes):
                value = value.decode("latin-1")
        except Exception:  # an object of another library may raise anything
            return None
        if isinstance(value, (str, int)):
            return str(value).strip()
    return None


def _number(text: str | None) -> float | None:
    """Return a non-negative decimal number. The largest float if it is larger."""
    if text is None or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else sys.float_info.max


def _aware(timestamp: datetime) -> datetime:
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=timezone.utc)


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
