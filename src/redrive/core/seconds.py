"""Durations: given as seconds or `timedelta`, read back as float seconds."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeAlias

Seconds: TypeAlias = float | timedelta
"""A duration wherever one is *given*. What is read back is a float of seconds; a moment is an aware datetime."""


def number(name: str, value: object, /) -> float:
    """A finite, non-negative number, or an error that names what was wrong."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}: {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, not {value!r}")
    if value < 0:
        raise ValueError(f"{name} must not be negative: {value!r}")
    return float(value)


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
        raise ValueError(f"{name} must be above 0 (None means no limit)")
    return given
