"""Text for people: counts, durations and error messages."""

from __future__ import annotations

DURATION_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
UNREADABLE_MESSAGE = "(its message cannot be read)"
HTTPX_LINK = "\nFor more information check: "
"""Begin of the last line of an HTTP status error of httpx: a link to a page about the status."""


def pluralise(count: int, noun: str, /, plural: str | None = None) -> str:
    """Return `1 partition`, `2,000 partitions`.

    Args:
        count: The number.
        noun: The noun in the singular.
        plural: The plural, if it is not the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def duration_unit(seconds: float, /) -> tuple[float, str]:
    """Return the unit for a duration, as seconds and name. A unit is used from five of it on."""
    return next((unit for unit in DURATION_UNITS if seconds >= 5 * unit[0]), (1.0, "s"))


def format_duration(seconds: float | None, /) -> str:
    """Return `0.25 s`, `31.2 s`, `5 min`, `7.5 h`, or `no limit` for None and infinity."""
    if seconds is None or seconds == float("inf"):
        return "no limit"
    unit, name = duration_unit(seconds)
    value = seconds / unit
    return f"{value:.3g} {name}" if value < 1000 else f"{value:,.0f} {name}"


def join_reason(reason: str | None, message: str | None, /) -> str:
    """Return `reason: message`. A message that begins with the reason is returned alone.

    The reason may be a type, and the message may begin with its module, as `urllib.error.URLError`.
    """
    if not reason or not message:
        return message or reason or ""
    has_reason = message.startswith(reason) or message.partition(":")[0].endswith(f".{reason}")
    return message if has_reason else f"{reason}: {message}"


def safe_str(error: BaseException, /) -> str:
    """Return the message of an error, without the link that httpx adds. Never raises."""
    try:
        return str(error).partition(HTTPX_LINK)[0]
    except Exception:  # an error whose `__str__` raises is still an error
        return UNREADABLE_MESSAGE
