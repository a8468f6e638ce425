"""The command line that does the same as a button."""

from __future__ import annotations

import shlex
from typing import Any

PLACEHOLDER = "..."
"""The value of an option that the reader fills in."""


def command(*words: object, **options: Any) -> str:
    """Return a command such as `redrive dead replay 7 --because "..."`, quoted for a shell.

    Words that begin with a dash follow `--`: the id of an event comes from its sender and must not
    become an option.

    Args:
        words: The subcommand and its arguments.
        options: Options by name, with `_` for `-`. True is a flag. None and False are left out.
    """
    texts = [_one_line(word) for word in words]
    split = next((at for at, text in enumerate(texts) if text.startswith("-")), len(texts))
    parts = ["redrive", *map(shlex.quote, texts[:split])]
    for name, value in options.items():
        flag = f"--{name.rstrip('_').replace('_', '-')}"
        if value is True:
            parts.append(flag)
        elif value == PLACEHOLDER:
            parts.append(f'{flag} "{PLACEHOLDER}"')
        elif value is not None and value is not False:
            parts.append(f"{flag} {shlex.quote(_one_line(value))}")
    if texts[split:]:
        parts += ["--", *map(shlex.quote, texts[split:])]
    return " ".join(parts)


def _one_line(value: object) -> str:
    """Return the value as a person writes it: 50 instead of 50.0, without control characters."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "".join(char if char.isprintable() else " " for char in text)
