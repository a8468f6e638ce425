"""Durations: passed as seconds or `timedelta`, stored as float seconds. And checks of numbers."""

from __future__ import annotations

import math
from operator import index
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from datetime import timedelta

Seconds: TypeAlias = "float | timedelta"
"""The type of options that are durations."""


CENTURY_SECONDS = 36_525 * 86_400.0
"""Seconds. `datetime` cannot represent ends that are much later."""


def real(name: str, value: object, /) -> float:
    """Return a finite number. Errors name the option and the value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}: {value!r}")
    try:
        finite = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large a number; a float cannot hold it") from None
    if not math.isfinite(finite):
        raise ValueError(f"{name} must be a finite number, not {value!r}")
    return finite


def number(name: str, value: object, /) -> float:
    """Return a finite number that is not negative."""
    result = real(name, value)
    if result < 0:
        raise ValueError(f"{name} must not be negative: {value!r}")
    return result


def whole_number(name: str, value: object, /, *, least: int = 1) -> int:
    """Return a whole number of at least `least`. Types of other libraries (numpy) are accepted."""
    if isinstance(value, (bool, type)) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}: {value!r}")
    result = index(value)
    if result < least:
        raise ValueError(f"{name} must be at least {least}: {value!r}")
    return result


def seconds(name: str, value: object, /) -> float:
    """Return a duration in seconds that is not negative, from a number or a timedelta."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        from datetime import timedelta  # noqa: PLC0415  # 1 ms that numbers do not need

        if not isinstance(value, timedelta):
            raise TypeError(
                f"{name} must be seconds or a timedelta, not {type(value).__name__}: {value!r}"
            )
        value = value.total_seconds()
    return number(name, value)


def positive(name: str, value: object, /) -> float:
    """Return a duration above zero."""
    duration = seconds(name, value)
    if duration == 0:
        raise ValueError(f"{name} must be above 0: {value!r}")
    return duration


def dated_duration(name: str, value: object, /) -> float:
    """Return a duration above zero whose end is stored as a timestamp: less than a century."""
    return check_dated(name, positive(name, value))


def check_dated(name: str, duration: float, /) -> float:
    """Return a duration in seconds if its end can be stored as a timestamp."""
    if duration > CENTURY_SECONDS:
        raise ValueError(f"{name} must be less than a century: {duration:.6g} s")
    return duration
