"""The logging sink: records as lines of the standard library's `redrive` logger. On by default."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .record import Record

INFO, WARNING = 20, 30


def log(record: Record, /) -> None:
    """Log a record: `giveup` of spent retries and an opened breaker as warnings, all else as info."""
    level = level_of(record.kind, record.fields.get("reason"))
    if enabled(level):
        extra = {"redrive": dict(record.fields), "redrive_kind": record.kind}
        sys.modules["logging"].getLogger("redrive").log(level, "%s", line(record), extra=extra)


def _find(level: int, /) -> bool:
    """Find the logger, if the program uses `logging` at all: nobody can have set one up otherwise, and it costs 14 ms."""
    global enabled  # noqa: PLW0603  # found once
    if "logging" not in sys.modules:
        return False
    logging = sys.modules["logging"]
    logger = logging.getLogger("redrive")
    logger.addHandler(logging.NullHandler())  # an unconfigured program prints the exception, not the log as well
    enabled = logger.isEnabledFor
    return enabled(level)


enabled: Callable[[int], bool] = _find
"""Whether anybody would see a record of this level: asked before one is made, since that costs more."""


def line(record: Record, /) -> str:
    """One line for a person."""
    fields = record.fields
    tried = f"{fields.get('operation')}: attempt {fields.get('attempt')} of {fields.get('max_attempts')}"
    if record.kind == "retry":
        return f"{tried} failed ({_short(fields)}), again in {fields['wait']:.3g} s"
    if record.kind == "giveup":
        return f"{tried} failed ({_short(fields)}), giving up: {fields.get('reason')}"
    if record.kind in ("recovered", "success"):
        return f"{tried} succeeded"
    return record.kind.replace("_", " ") + "".join(f" {name}={value}" for name, value in fields.items())


def _short(fields: object) -> str:
    assert isinstance(fields, dict)
    text = f"{fields.get('error_class')}: {fields.get('error')}"
    return text if len(text) <= 200 else text[:199] + "…"


def level_of(kind: str, reason: object = None, /) -> int:
    """The level of a record."""
    return WARNING if kind == "breaker_opened" or (kind == "giveup" and reason != "not_retryable") else INFO
