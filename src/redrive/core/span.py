"""Span: a duration as people say it."""

from __future__ import annotations

UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def unit_of(seconds: float, /) -> tuple[float, str]:
    """The unit in which so many seconds are said, as seconds and by name: from five of a unit on."""
    return next((unit for unit in UNITS if seconds >= 5 * unit[0]), (1.0, "s"))


def span(seconds: float | None, /) -> str:
    """0.25 s, 31.2 s, 5 min, 7.5 h; None and infinity have no end."""
    if seconds is None or seconds == float("inf"):
        return "no limit"
    unit, name = unit_of(seconds)
    said = seconds / unit
    return f"{said:.3g} {name}" if said < 1000 else f"{said:,.0f} {name}"
