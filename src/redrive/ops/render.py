"""Reports as JSON, and times as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any

from ..partitions.key import Partition


def document(value: Any, /) -> Any:
    """Return a value for JSON. Times are in ISO 8601 and UTC, durations in seconds."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Partition):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: document(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): document(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return document(value._asdict())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [document(item) for item in value]
    return value


UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
STEPS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)")


def ago(moment: datetime | None, now: datetime, /) -> str:
    """Return `12 s ago`, `5 min ago` or `in 3 h`."""
    if moment is None:
        return "–"
    seconds = (now - moment).total_seconds()
    size, name = next((step for step in STEPS if abs(seconds) >= 2 * step[0]), (1.0, "s"))
    count = round(abs(seconds) / size)
    if count == 0:
        return "now"
    return f"{count:,} {name} ago" if seconds > 0 else f"in {count:,} {name}"


def utc(moment: datetime | None, /) -> str:
    """Return `2026-01-31 12:30:05`."""
    return "–" if moment is None else moment.astimezone(timezone.utc).isoformat(" ")[:19]


def describe_probe(at: datetime | None, now: datetime, /) -> str:
    """Return `; next probe in 12 s (12:30:05 UTC)`, to follow the reason of a pause."""
    if at is None:
        return ""
    if at <= now:
        return "; the next probe is due"
    return f"; next probe {ago(at, now)} ({utc(at)[11:]} UTC)"


def both(moment: datetime | None, now: datetime, /) -> str:
    """Return `5 min ago, 2026-01-31 12:30:05 UTC`."""
    return "–" if moment is None else f"{ago(moment, now)}, {utc(moment)} UTC"


def moment(text: str, /) -> datetime:
    """Parse a time: 90s, 30min, 12h or 7d ago, or ISO 8601, in UTC unless it has a time zone."""
    span = SPAN.fullmatch(text.strip())
    now = datetime.now(timezone.utc)
    if span is not None:
        try:
            return now - timedelta(seconds=float(span[1]) * UNITS[span[2]])
        except OverflowError:
            raise ValueError(f"invalid time {text!r}: too long ago") from None
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"invalid time {text!r}: use 90s, 30min, 12h, 7d or 2026-01-31T12:30"
        ) from None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=timezone.utc)


def parse_future_time(text: str, now: datetime, /) -> datetime:
    """Parse a time to come: 90s, 30min, 12h or 7d from now, or ISO 8601, in UTC by default."""
    span = SPAN.fullmatch(text.strip())
    if span is None:
        return moment(text)
    try:
        return now + timedelta(seconds=float(span[1]) * UNITS[span[2]])
    except OverflowError:
        raise ValueError(f"invalid time {text!r}: too far ahead") from None
