"""The line for a terminal beside every button, and how values are shown."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from redrive.console.render.command import command
from redrive.console.render.icons import SIGNS, sign, tone
from redrive.console.render.templates import HINT, TEMPLATES, first_line, hint, number, percent, seconds, short, took

NOW = datetime(2026, 1, 31, 12, 30, tzinfo=timezone.utc)


def test_a_command_as_one_writes_it() -> None:
    line = command("dead", "replay", 7, kind="crm.sync", since=None, rate=50.0, detach=True, force=False, because="...")
    assert line == 'redrive dead replay 7 --kind crm.sync --rate 50 --detach --because "..."'


@given(st.text(), st.text())
def test_whatever_is_in_it_a_shell_reads_it_back_as_one_word(kind: str, error: str) -> None:
    words = shlex.split(command("dead", "list", kind=kind, error=error))
    printable = ["".join(each if each.isprintable() else " " for each in text) for text in (kind, error)]
    assert words == ["redrive", "dead", "list", "--kind", printable[0], "--error", printable[1]]


def test_what_begins_with_a_dash_is_no_option() -> None:
    line = command("events", "show", "--ledger=postgresql://mallory@evil.example/db", source="shop")
    assert line == "redrive events show --source shop -- --ledger=postgresql://mallory@evil.example/db"


def test_values_as_people_read_them() -> None:
    assert number(12345) == "12,345"
    assert number(None) == "–"
    assert seconds(timedelta(minutes=5)) == "5 min"
    assert took(NOW, NOW + timedelta(seconds=1.5)) == "1.5 s"
    assert took(None, NOW) == "–"
    assert first_line("one\ntwo") == "one"
    assert first_line(None) == "–"
    assert percent(1, 4) == "25.00%"
    assert percent(1, 0) == "0%"
    assert short({"a": "x" * 200}).endswith("…")
    assert seconds(0.0078) == "8 ms"
    assert len(first_line("x" * 8000)) == len(hint("x" * 8000)) == HINT
    assert hint(None) == ""


def test_every_state_has_a_sign_and_a_tone() -> None:
    assert {tone(state) for state in SIGNS} <= {"good", "info", "calm", "warn", "bad"}
    assert all(sign(state) for state in SIGNS)
    assert sign("never heard of") == "·"


@given(st.text())
def test_templates_escape_everything(text: str) -> None:
    made = TEMPLATES.from_string('<p title="{{ text }}">{{ text }}</p>').render(text=text)
    inner = made.removeprefix('<p title="').removesuffix("</p>")
    assert "<" not in inner
    assert inner.count('"') == 1
