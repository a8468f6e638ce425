"""Options whose value is a state: they take the words that are printed, and the stored names too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import typer

PARTITION = {
    "pending": "pending",
    "accepted": "success",
    "newer run rejected": "refresh_failed",
    "failed": "failed",
    "gave up": "terminal",
}
JOB = {
    "queued": "queued",
    "running": "running",
    "retry scheduled": "retry_wait",
    "done": "done",
    "blocked": "blocked",
    "dead": "dlq",
    "replaying": "replaying",
    "discarded": "discarded",
}
DEAD_LETTER = {word: word for word in ("pending", "replaying", "replayed", "discarded", "all")}
RECORD = {word: word for word in ("processing", "completed", "failed")}
EVENT = {"failed": "failed"}
"""Of an event: at least one of its handlers has a dead letter."""
SYNONYMS = {"given up": "gave up", "retrying": "retry scheduled", "in progress": "processing"}
"""Words for the same states on other pages of the CLI, the console and the documentation."""


def state_option(name: str, states: Mapping[str, str], help_: str, *, show_default: bool = False) -> Any:
    """An option that takes a state.

    Args:
        name: Name of the option.
        states: Printed words, each with its stored name.
        help_: Help text.
        show_default: Whether the help names the default.
    """
    words = list(states)
    return typer.Option(
        name,
        metavar=f"[{'|'.join(words)}]",
        help=help_,
        show_default=show_default,
        parser=stored_name(states),
        autocompletion=lambda: words,
    )


def stored_name(states: Mapping[str, str], /) -> Callable[[str], str]:
    """A parser: the stored name of a state, from any word for it. Case, hyphens and underscores do not matter."""
    known = {_plain(word): stored for word, stored in states.items()}
    known |= {_plain(stored): stored for stored in states.values()}
    known |= {_plain(word): states[printed] for word, printed in SYNONYMS.items() if printed in states}

    def parse(text: str) -> str:
        stored = known.get(_plain(text))
        if stored is None:
            raise typer.BadParameter(f"unknown state {text!r}; use {_list_words(states)}")
        return stored

    return parse


def _plain(word: str) -> str:
    return re.sub(r"[\s_-]+", " ", word.strip().casefold())


def _list_words(states: Mapping[str, str]) -> str:
    *most, last = (repr(word) if " " in word else word for word in states)
    return f"{', '.join(most)} or {last}" if most else last
