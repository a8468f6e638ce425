"""Shown: how values are shown on pages: moments, numbers, states with their sign. Everything is escaped."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ...core.text import format_duration, pluralise
from ...ops.render import ago, utc
from . import fragments
from .command import command
from .icons import sign, tone, word
from .sparkline import bars

SHORT, HINT = 80, 400
LONGEST = 50_000
"""Characters of a payload on a page: nobody reads more of it there."""
CONSOLE = Path(__file__).parent.parent


def iso(moment: datetime | None, /) -> str:
    """For the attribute `datetime`."""
    return "" if moment is None else moment.astimezone(timezone.utc).isoformat()


def number(value: float | None, /) -> str:
    """12,345; – where there is none."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def took(start: datetime | None, end: datetime | None, /) -> str:
    """How long from one moment to the other."""
    return "–" if start is None or end is None else seconds(max(0.0, (end - start).total_seconds()))


def seconds(value: float | timedelta | None, /) -> str:
    """8 ms, 1.5 s, 5 min, 7.5 h."""
    if value is None:
        return "–"
    passed = value.total_seconds() if isinstance(value, timedelta) else value
    if 0 < passed < 1:
        return f"{1000 * passed:.0f} ms"
    return format_duration(passed if passed < 10 else round(passed))


def readable(value: Any, /) -> str:
    """A payload as text: JSON is laid out."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)


def plainly(value: Any, /) -> str:
    """What a check measured, or its limit: 3; min 1, max 9."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items() if each is not None)
    return "" if value is None else f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def first_line(text: str | None, /) -> str:
    """Of an error, as far as a list has room."""
    return "–" if not text else _cut(text.strip().partition("\n")[0], HINT)


def hint(text: str | None, /) -> str:
    """Of an error, under the pointer: an error may have thousands of characters, and a page fifty errors."""
    return _cut(text or "", HINT)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def short(value: Any, /) -> str:
    """A value of the audit in a few words."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _cut(text, SHORT)


def percent(part: float, whole: float, /) -> str:
    """Of a bar's width: 37.5%."""
    return f"{100.0 * part / whole:.2f}%" if whole else "0%"


def _environment() -> Environment:
    # Escaping is on for every template, whatever its name; a name that is missing is an error, not an empty place.
    made = Environment(
        loader=FileSystemLoader(CONSOLE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "ago": ago, "utc": utc, "iso": iso, "number": number, "seconds": seconds, "readable": readable, "sign": sign,
        "tone": tone, "first_line": first_line, "hint": hint, "plainly": plainly, "short": short, "span": format_duration,
        "bars": bars, "amount": pluralise, "status": fragments.status, "when": fragments.when, "count": fragments.count,
        "trend": fragments.trend, "inline": fragments.inline, "sentence": fragments.sentence, "word": word,
    }  # fmt: skip
    made.globals |= {"took": took, "percent": percent, "command": command, "longest": LONGEST, "pieces": fragments}
    return made


TEMPLATES = _environment()
