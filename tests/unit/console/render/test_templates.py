"""Template filters: numbers, durations and errors as people read them, and escaping."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from redrive.console.render.templates import (
    MAX_ERROR_CHARS,
    TEMPLATES,
    check_value,
    first_line,
    hint,
    number,
    percent,
    seconds,
    short,
    time_between,
)

NOW = datetime(2026, 1, 31, 12, 30, tzinfo=timezone.utc)


def test_numbers_have_separators_and_missing_ones_are_a_dash() -> None:
    assert number(12345) == "12,345"
    assert number(None) == "–"
    assert percent(1, 4) == "25.00%"
    assert percent(1, 0) == "0%"
    assert (check_value(1234), check_value(None), check_value(True)) == ("1,234", "", "True")
    assert check_value({"min": 1, "max": None}) == "min 1"


def test_durations_have_a_unit() -> None:
    assert seconds(timedelta(minutes=5)) == "5 min"
    assert seconds(0.0078) == "8 ms"
    assert seconds(0.0002) == "< 1 ms"
    assert time_between(NOW, NOW + timedelta(seconds=1.5)) == "1.5 s"
    assert time_between(None, NOW) == "–"


def test_long_texts_are_truncated() -> None:
    assert first_line("one\ntwo") == "one"
    assert first_line(None) == "–"
    assert hint(None) == ""
    assert short({"a": "x" * 200}).endswith("…")
    assert len(first_line("x" * 8000)) == len(hint("x" * 8000)) == MAX_ERROR_CHARS


@given(st.text())
def test_templates_escape_everything(text: str) -> None:
    html = TEMPLATES.from_string('<p title="{{ text }}">{{ text }}</p>').render(text=text)
    inner = html.removeprefix('<p title="').removesuffix("</p>")
    assert "<" not in inner
    assert inner.count('"') == 1
