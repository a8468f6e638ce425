"""Document: a report as JSON can hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any

from ..partitions.key import Partition


def document(value: Any, /) -> Any:
    """Records by their fields, moments in ISO 8601 and UTC, durations in seconds, partitions in their text form."""
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
