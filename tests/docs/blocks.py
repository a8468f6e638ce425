"""The fenced blocks of a Markdown page, and the comments that control how they run.

- A `python` block is run. The blocks of a page share one namespace, in order.
- `<!-- not run: reason -->` right before a block: the block is compiled only.
- `<!-- run -->` right before a `console` block: each `$ command` must exit with 0 and print the lines below it.
  `...` stands for any text. `<!-- run, exit code 1 -->` expects another exit code.
- `<!-- file: name.py -->` right before a block of any language but `console`: the block is written to this file, not run.
  A `python` block is compiled too.
- A block inside a comment that starts with a line `<!-- hidden` and ends with a line `-->` is run as well, and is
  not on the page that people read. Use it for servers that fail on request, cleanup and assertions.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Literal

FENCE = re.compile(r"(?P<indent> *)(?P<ticks>```+)(?P<language>\w*)(?P<rest>.*)")
COMMENT = re.compile(r" *<!-- (?P<what>run(?:, exit code \d+)?|not run: .+|file: .+) -->")
HIDDEN = "<!-- hidden"
NOT_RUN_WITHOUT_REASON = re.compile(r" *<!-- not run:? *-->")


@dataclass(frozen=True)
class Block:
    language: Literal["python", "console", "file"]
    source: str
    line: int
    """Line number of its first line, from 1."""
    run: bool
    file: str | None = None
    """File name of the block, in the folder of the page."""
    status: int = 0
    """Exit code that a console block expects."""


def blocks(text: str) -> list[Block]:
    found: list[Block] = []
    lines = text.splitlines()
    said = ""
    number = 0
    hidden = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.strip() == HIDDEN:
            hidden = number
        elif hidden and line.strip() == "-->":
            hidden = 0
        if NOT_RUN_WITHOUT_REASON.fullmatch(line):
            raise ValueError(f"line {number}: say why it is not run: <!-- not run: reason -->")
        if comment := COMMENT.fullmatch(line):
            said = comment["what"]
        elif fence := FENCE.fullmatch(line):
            first = number
            while number < len(lines) and lines[number].strip() != fence["ticks"]:
                number += 1
            source = textwrap.dedent("\n".join(lines[first:number])) + "\n"
            file = said.removeprefix("file: ") if said.startswith("file: ") else None
            if fence["language"] == "python":
                is_run = file is None and not said.startswith("not run")
                found.append(Block("python", source, first + 1, run=is_run, file=file))
            elif fence["language"] == "console":
                status = int(said.rpartition(" ")[2]) if said.startswith("run, ") else 0
                found.append(Block("console", source, first + 1, run=said.startswith("run"), status=status))
            elif file:
                found.append(Block("file", source, first + 1, run=False, file=file))
            said = ""
            number += 1
        elif line.strip():
            said = ""  # a comment applies to the next block
    if hidden:
        raise ValueError(f"line {hidden}: a hidden block is not closed; end it with a line -->")
    return found
