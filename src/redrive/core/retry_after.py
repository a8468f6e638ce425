"""What a server says about when to come back: Retry-After and its relatives. Pure functions that never raise."""

from __future__ import annotations

import math
import re
import sys
from datetime import datetime, timezone

from .clock import SYSTEM

MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")
"""Headers of the openai and Azure services: the exact figure that Retry-After rounds."""
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")


def retry_after(headers: object, *, now: datetime | None = None) -> float | None:
    """Seconds to wait by these response headers; None where they say nothing that can be understood.

    A date counts from the response's own Date (clocks differ), else from `now`, else from the system clock.
    """
    for name in MILLISECONDS:
        exact = _number(header(headers, name))
        if exact is not None:
            return exact / 1000
    text = header(headers, "retry-after")
    seconds = _number(text)
    if seconds is not None:
        return seconds
    moment = http_date(text)
    if moment is None:
        return None
    start = http_date(header(headers, "date")) or now or SYSTEM.now()
    return until(moment, start)


def until(moment: datetime, start: datetime) -> float:
    """Seconds from one moment to another; 0.0 where it has passed. A naive datetime is taken as UTC."""
    return max(0.0, (_aware(moment) - _aware(start)).total_seconds())


def pushback(text: str | None) -> float | None:
    """Seconds by gRPC's `grpc-retry-pushback-ms`; None means "do not retry" (negative, or not a number: gRFC A6)."""
    if text is None or not re.fullmatch(r"[0-9]{1,15}", text):
        return None
    return int(text) / 1000


def http_date(text: str | None) -> datetime | None:
    """The moment of an HTTP-date, aware; None for anything else."""
    if text is None or ":" not in text:
        return None
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  # 10 ms that most programs never need

    try:
        return _aware(parsedate_to_datetime(text))
    except Exception:  # garbage makes it raise more than its documented ValueError
        return None


def header(headers: object, name: str) -> str | None:
    """One header by its lower-case name, out of whatever mapping a library keeps them in."""
    for spelling in (name, name.title()):
        try:
            value = headers.get(spelling)  # type: ignore[attr-defined]  # no such method: no such header
            if isinstance(value, bytes):
                value = value.decode("latin-1")
        except Exception:  # a foreign object may raise anything
            return None
        if isinstance(value, (str, int)):
            return str(value).strip()
    return None


def _number(text: str | None) -> float | None:
    """A plain, non-negative decimal number; one too large for a float becomes the largest float."""
    if text is None or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else sys.float_info.max


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
