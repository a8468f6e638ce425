"""Retry-After and similar headers. Pure functions that never raise."""

from __future__ import annotations

import math
import re
import sys
from datetime import datetime, timezone

from ..clock import SYSTEM

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
