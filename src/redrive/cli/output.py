"""Output: what every command prints on, and how data is printed for machines."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

BAD_INPUT = 2


def console() -> Console:
    """Standard output: as wide as the terminal, coloured only on one, and without colours where NO_COLOR says so."""
    return Console(highlight=False, emoji=False, markup=False)


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


def show(out: Console, what: RenderableType) -> None:
    """Print; where it goes to a file or a pipe, without the spaces that fill a screen."""
    if out.is_terminal:
        out.print(what)
        return
    with out.capture() as captured:
        out.print(what)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_json(data: Any) -> None:
    """One JSON document."""
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def complain(message: str, *hints: str) -> None:
    """One line on standard error, and a line for each hint."""
    print(f"redrive: {message}", file=sys.stderr)
    for hint in hints:
        print(f"  {hint}", file=sys.stderr)
