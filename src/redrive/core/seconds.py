"""Durations: given as seconds or `timedelta`, read back as float seconds."""

from __future__ import annotations

import math
from datetime import timedelta
from operator import index
from typing import TypeAlias

Seconds: TypeAlias = float | timedelta
"""A duration wherever one is *given*. What is read back is a float of seconds; a moment is an aware datetime."""


CENTURY = 36_525 * 86_400.0
"""Seconds. Whatever ends later than that has no date that a calendar could show."""


def real(name: str, value: object, /) -> float:
    """A finite number, or an error that names what was wrong."""
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
    """A finite number from 0 on."""
    given = real(name, value)
    if given < 0:
        raise ValueError(f"{name} must not be negative: {value!r}")
    return given


def whole(name: str, value: object, /, *, least: int = 1) -> int:
    """A whole number from `least` on; those of other libraries, such as numpy's, are taken too."""
    if isinstance(value, (bool, type)) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}: {value!r}")
    given = index(value)
    if given < least:
        raise ValueError(f"{name} must be at least {least}: {value!r}")
    return given


def seconds(name: str, value: object, /) -> float:
    """A non-negative duration in seconds, given as a number or a timedelta."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be seconds or a timedelta, not {type(value).__name__}: {value!r}")
    return number(name, value)


def positive(name: str, value: object, /) -> float:
    """A duration above zero."""
    given = seconds(name, value)
    if given == 0:
        raise ValueError(f"{name} must be above 0: {value!r}")
    return given


def lasting(name: str, value: object, /) -> float:
    """A duration above zero whose end is written down as a moment: a century at most."""
    return dated(name, positive(name, value))


def dated(name: str, given: float, /) -> float:
    """The same for one that may be zero."""
    if given > CENTURY:
        raise ValueError(f"{name} must be less than a century: {given:.6g} s")
    return given
