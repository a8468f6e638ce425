"""Standard output: text for people, JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ...ops.render import document

T = TypeVar("T")
UNLIMITED_COLUMNS = 10_000
"""Width of the output if it does not go to a terminal."""
CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that move the cursor, change colours or reverse the reading direction."""


def console() -> Console:
    """Return standard output: as wide as the terminal, and never cut in a pipe or a file.

    Many shells and CI systems export COLUMNS, which is not a reason to cut data. Colours are used
    only at a terminal, and not with NO_COLOR.
    """
    out = Console(highlight=False, emoji=False, markup=False)
    if not out.file.isatty():
        out.width = UNLIMITED_COLUMNS
    return out


class Sanitized:
    """A renderable without control characters. Errors and payloads may contain them."""

    def __init__(self, body: RenderableType) -> None:
        self.body = body

    def __rich_console__(self, out: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in out.render(self.body, options):
            yield Segment(CONTROL_CHARACTERS.sub("", text), style, control)


def show(body: RenderableType, /, *, style: str = "") -> None:
    """Print a text or another renderable. Outside of a terminal, lines have no trailing spaces."""
    out = console()
    if isinstance(body, str):
        body = Text(body, style=style)
    if out.is_terminal:
        out.print(Sanitized(body))
        return
    with out.capture() as captured:
        out.print(Sanitized(body))
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_result(result: T, /, as_json: bool, view: Callable[[T], RenderableType]) -> None:
    """Print the result of a command: as JSON, or as the text or view of it."""
    if as_json:
        print_json(result)
    else:
        show(view(result))


def print_json(data: Any, /) -> None:
    """Print one JSON document. Records are converted."""
    _print_document(data, indent=2)


def print_json_line(data: Any, /, *, flush: bool = False) -> None:
    """Print one JSON document on one line."""
    _print_document(data, flush=flush)


def _print_document(data: Any, *, indent: int | None = None, flush: bool = False) -> None:
    text = json.dumps(document(data), indent=indent, ensure_ascii=False, allow_nan=False)
    print(CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text), flush=flush)
