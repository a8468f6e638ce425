"""Command: the line for a terminal that does the same as a button."""

from __future__ import annotations

import shlex
from typing import Any

BLANK = '"..."'
"""To be filled in by whoever runs it."""


def command(*words: object, **options: Any) -> str:
    """`redrive dead replay 7 --because "…"`: what is None or False is left out, True is a flag, `_` in a name is `-`.

    Quoted for a shell, whatever is in it: a kind or an error's words may hold anything. What begins with a dash goes behind `--`:
    an event's id is its sender's, and no option.
    """
    plain = [_word(word) for word in words]
    first = next((at for at, word in enumerate(plain) if word.startswith("-")), len(plain))
    said = ["redrive", *map(shlex.quote, plain[:first])]
    for name, value in options.items():
        flag = f"--{name.rstrip('_').replace('_', '-')}"
        if value is True:
            said.append(flag)
        elif value is not None and value is not False:
            said.append(f"{flag} {BLANK if value == '...' else shlex.quote(_word(value))}")
    if plain[first:]:
        said += ["--", *map(shlex.quote, plain[first:])]
    return " ".join(said)


def _word(value: object) -> str:
    """As one writes it: 50, not 50.0; and in one line."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "".join(each if each.isprintable() else " " for each in text)
