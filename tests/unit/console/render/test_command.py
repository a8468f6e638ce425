"""The equivalent command line: quoted for a shell, and written as a person writes it."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from redrive.console.render.fragments import command


def test_a_command_omits_unset_options_and_writes_flags() -> None:
    line = command("dead", "replay", 7, kind="crm.sync", since=None, rate=50.0, detach=True, force=False, because="...")
    assert line == 'redrive dead replay 7 --kind crm.sync --rate 50 --detach --because "..."'


@given(st.text(), st.text())
def test_a_shell_reads_every_value_back_as_one_word(kind: str, error: str) -> None:
    words = shlex.split(command("dead", "list", kind=kind, error=error))
    printable = ["".join(char if char.isprintable() else " " for char in text) for text in (kind, error)]
    assert words == ["redrive", "dead", "list", "--kind", printable[0], "--error", printable[1]]


def test_a_word_that_begins_with_a_dash_is_not_an_option() -> None:
    line = command("events", "show", "--ledger=postgresql://mallory@evil.example/db", source="shop")
    assert line == "redrive events show --source shop -- --ledger=postgresql://mallory@evil.example/db"
