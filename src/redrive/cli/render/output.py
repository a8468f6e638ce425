"""Output: what every command prints on, and how data is printed for machines."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ...ops.secret import without_secrets
from .suggestions import spelled, then

IN_CODE = ", or open_ledger(..., migrate=True)"
"""How a program creates a ledger, at the end of a message of the ledger. Not for a terminal."""
CREATE = "; create it with "
BAD_INPUT = 2
UNCUT = 10_000
"""Columns where no terminal limits them."""
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that move the cursor, colour what follows, or turn the order of what is read."""


def console() -> Console:
    """Standard output: as wide as the terminal, and never cut in a pipe or a file.

    Many shells and CI systems export COLUMNS, which is no reason to cut data. Colours only at a terminal,
    and not with NO_COLOR.
    """
    out = Console(highlight=False, emoji=False, markup=False)
    if not out.file.isatty():
        out.width = UNCUT
    return out


def table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """A table without a frame: words to the left, numbers to the right, long words folded."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        if column in numbers:
            made.add_column(column, justify="right", no_wrap=True)
        else:
            made.add_column(column, overflow="fold")
    return made


def bullets() -> Table:
    """A list: signs in front, and text that is folded beside them."""
    made = Table.grid(padding=(0, 1))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    return made


def pairs() -> Table:
    """Names in front, and what they stand for folded beside them."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True, style="dim")
    made.add_column(overflow="fold")
    return made


def heading(text: str) -> Text:
    """What a part of the output is about."""
    return Text(text, style="bold")


class Harmless:
    """What is to be shown, without characters that are commands to a terminal: errors and payloads are other people's words."""

    def __init__(self, what: RenderableType) -> None:
        self.what = what

    def __rich_console__(self, out: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in out.render(self.what, options):
            yield Segment(COMMANDS.sub("", text), style, control)


def show(out: Console, what: RenderableType) -> None:
    """Print; where it goes to a file or a pipe, without the spaces that fill a screen."""
    if out.is_terminal:
        out.print(Harmless(what))
        return
    with out.capture() as captured:
        out.print(Harmless(what))
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_json(data: Any) -> None:
    """One JSON document."""
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    print(COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_line(data: Any) -> None:
    """One JSON document on one line."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    print(COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def complain(message: str, *hints: str) -> None:
    """One line on standard error, and a line for each hint, which may be a command."""
    print(f"redrive: {COMMANDS.sub('', without_secrets(spelled(message)))}", file=sys.stderr)
    for hint in hints:
        print(f"  {COMMANDS.sub('', without_secrets(then(spelled(hint))))}", file=sys.stderr)


def complain_of(problem: Exception, /) -> None:
    """An error of the ledger, with its notes. A missing ledger is often a wrong address."""
    message, create, command = str(problem).removesuffix(IN_CODE).partition(CREATE)
    notes = getattr(problem, "__notes__", ())
    if create:
        complain(f"{message}; check the address (`redrive config`)", f"for a new ledger: {command}", *notes)
    else:
        complain(message, *notes)
