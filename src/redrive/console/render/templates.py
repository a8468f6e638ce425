"""The template environment, and the filters that show times, numbers and payloads.

Everything is escaped.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from ...core.text import format_duration, pluralise
from ...ops.render import ago, utc
from . import charts, fragments
from .fragments import command, icon, state_name, tone

MAX_DETAIL_CHARS = 80
"""Characters of a value in the audit log."""
MAX_ERROR_CHARS = 400
"""Characters of an error in a list. An error may have thousands, and a page fifty errors."""
MAX_PAYLOAD_CHARS = 50_000
TEMPLATES_FOLDER = files(__package__.rpartition(".")[0]) / "templates"


def iso(time: datetime | None, /) -> str:
    """Return a time for the attribute `datetime`."""
    return "" if time is None else time.astimezone(timezone.utc).isoformat()


def number(value: float | None, /) -> str:
    """Return a number such as 12,345, or a dash."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def time_between(start: datetime | None, end: datetime | None, /) -> str:
    """Return the time between two times, or a dash."""
    if start is None or end is None:
        return "–"
    return seconds(max(0.0, (end - start).total_seconds()))


def seconds(value: float | timedelta | None, /) -> str:
    """Return a duration such as 8 ms, 1.5 s, 5 min or 7.5 h, or a dash."""
    if value is None:
        return "–"
    duration = value.total_seconds() if isinstance(value, timedelta) else value
    if 0 < duration < 0.001:
        return "< 1 ms"
    if 0 < duration < 1:
        return f"{1000 * duration:.0f} ms"
    return format_duration(duration if duration < 10 else round(duration))


def readable(value: Any, /) -> str:
    """Return a payload as text. JSON is indented."""
    if isinstance(value, str):
        return value
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def check_value(value: Any, /) -> str:
    """Return the result or the limit of a check, such as 3, or min 1, max 9."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items() if part is not None)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)


def first_line(text: str | None, /) -> str:
    """Return the first line of an error, for a list."""
    return _truncate(text.strip().partition("\n")[0], MAX_ERROR_CHARS) if text else "–"


def hint(text: str | None, /) -> str:
    """Return an error for a title attribute."""
    return _truncate(text or "", MAX_ERROR_CHARS)


def short(value: Any, /) -> str:
    """Return a value of the audit log in a few words."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _truncate(text, MAX_DETAIL_CHARS)


def _truncate(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def percent(part: float, total: float, /) -> str:
    """Return the width of a bar, such as 37.50%."""
    return f"{100.0 * part / total:.2f}%" if total else "0%"


def _read_template(name: str) -> tuple[str, str, None]:
    """Return the text and the path of a template. It may be in a zip."""
    file = TEMPLATES_FOLDER / name
    return file.read_text(encoding="utf-8"), str(file), None


def _create_environment() -> Environment:
    # Escape in every template, regardless of its name. An undefined name is an error.
    environment = Environment(
        loader=FunctionLoader(_read_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "ago": ago,
        "count": fragments.count,
        "duration": charts.short_duration,
        "first_line": first_line,
        "format_duration": format_duration,
        "hint": hint,
        "icon": icon,
        "inline": fragments.inline,
        "iso": iso,
        "check_value": check_value,
        "number": number,
        "pluralise": pluralise,
        "readable": readable,
        "seconds": seconds,
        "sentence": fragments.sentence,
        "short": short,
        "state_name": state_name,
        "status": fragments.status,
        "tone": tone,
        "trend": fragments.trend,
        "utc": utc,
        "when": fragments.when,
    }
    environment.globals |= {
        "time_between": time_between,
        "percent": percent,
        "command": command,
        "fragments": fragments,
        "max_payload_chars": MAX_PAYLOAD_CHARS,
    }
    return environment


TEMPLATES = _create_environment()
