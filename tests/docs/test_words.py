"""The glossary lists every state whose word on screen differs from its name in JSON."""

from __future__ import annotations

import re
from pathlib import Path

from redrive.cli.render.details import STATE_NAMES
from redrive.console.render.fragments import NAMES

GLOSSARY = Path(__file__).parents[2] / "docs" / "concepts" / "glossary.md"


def test_the_glossary_has_the_words_of_the_command_line_and_the_console() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    words = {name: word for word, name in re.findall(r"(?m)^\| ([^|`]+) \| `(\w+)` \| [^|]+ \|$", text)}
    assert {**NAMES, **STATE_NAMES}.items() <= words.items()
    assert all(NAMES[state] == word for state, word in STATE_NAMES.items()), "one word in both"
