"""Tool: a function of an operator that an agent can call, with its arguments and its result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..ops.operator import Operator
from ..ops.render import document, moment

T = TypeVar("T")
MAX_RESULT_CHARS = 60_000
"""A longer result is cut. It would fill the context of an agent."""
CUTS = ((4_000, 200, 9), (1_000, 50, 7), (200, 25, 6), (80, 10, 5), (40, 3, 3))
"""Longest text, most entries of a list and levels, from the whole result to a small part of it."""
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""A payload could hide instructions for the agent in them, or reorder what a person sees."""
MAX_PAGE = 100
MAX_OFFSET = 500
"""Lists without a cursor of their own go back this far."""

When: TypeAlias = Annotated[
    str | None,
    Field(description="30min, 12h, 7d (ago), or a time such as 2026-01-31T12:30 (UTC)"),
]
JobTypeName: TypeAlias = Annotated[str | None, Field(description="Job type, such as receipts.send")]
Id: TypeAlias = Annotated[int, Field(ge=1, le=2**63 - 1)]


class ToolArguments(BaseModel):
    """Arguments of a tool. Unknown ones are rejected."""

    model_config = ConfigDict(extra="forbid")


class PageArguments(ToolArguments):
    """Arguments of a tool that returns a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE, description="Maximum number of entries")] = 20
    cursor: Annotated[
        str | None, Field(description="next_cursor of the last result, for the entries after it")
    ] = None


class OneArguments(ToolArguments):
    """The id of one thing, as lists show it."""

    id: Id


class NoArguments(ToolArguments):
    """No arguments."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. Immutable.

    Attributes:
        name: Name of the tool.
        summary: What it does, for the agent.
        arguments: Class of its arguments.
        run: Returns the result, a dictionary of values for JSON.
        is_act: Whether it changes something.
    """

    name: str
    summary: str
    arguments: type[ToolArguments]
    run: Callable[[Operator, Any], dict[str, Any]]
    is_act: bool = False

    def call(self, operator: Operator, arguments: dict[str, Any], /) -> dict[str, Any]:
        """Check the arguments, and return the result, cut to a bounded size.

        Raises:
            ValueError: An argument is not valid.
        """
        try:
            checked = self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise ValueError(f"{self.name}: {describe(error, self.arguments)}") from None
        result: dict[str, Any] = fit(escape_invisible(document(self.run(operator, checked))))
        return result


def describe(error: ValidationError, arguments: type[ToolArguments], /) -> str:
    """Return the problems of arguments in one line, without their values."""
    problems = []
    for each in error.errors(include_url=False, include_input=False):
        name = ".".join(map(str, each["loc"])) or "arguments"
        text = each["msg"]
        if each["type"] == "extra_forbidden":
            text = f"unknown argument; known: {', '.join(arguments.model_fields) or 'none'}"
        problems.append(f"{name}: {text}")
    return "; ".join(problems)


def time_of(text: str | None, /) -> datetime | None:
    """Return the time that an argument names."""
    return None if text is None else moment(text)


def first_line(text: str | None, /) -> str | None:
    """Return the first line of an error."""
    return None if text is None else text.partition("\n")[0]


def page_of(
    name: str, read: Callable[[int], Sequence[T]], page: PageArguments, /
) -> dict[str, Any]:
    """Return a page of a list that has no cursor of its own.

    Args:
        name: Name of the list in the result.
        read: Reads so many entries, from the first one.
        page: Which ones.

    Raises:
        ValueError: The cursor is not valid, or goes back too far.
    """
    start = cursor_number(page.cursor)
    if start + page.limit > MAX_OFFSET:
        raise ValueError(f"cursor: only the first {MAX_OFFSET} entries are listed; narrow the list")
    entries = read(start + page.limit + 1)[start:]
    following = start + page.limit if len(entries) > page.limit else None
    return {name: list(entries[: page.limit]), "next_cursor": as_cursor(following)}


def cursor_number(cursor: str | None, /) -> int:
    """Return the number in a cursor. 0 without one."""
    if cursor is not None and not cursor.isdecimal():
        raise ValueError(f"cursor: not valid: {cursor!r:.40}; pass next_cursor of the last result")
    return int(cursor or 0)


def as_cursor(number: int | None, /) -> str | None:
    """Return a cursor for the next page. None: there is none."""
    return None if number is None else str(number)


def escape_invisible(value: Any, /) -> Any:
    """Return a value with its invisible characters as `\\u{202e}`. Line breaks and tabs stay."""
    if isinstance(value, str):
        return INVISIBLE.sub(lambda match: f"\\u{{{ord(match[0]):x}}}", value)
    if isinstance(value, list):
        return [escape_invisible(each) for each in value]
    if isinstance(value, dict):
        return {escape_invisible(name): escape_invisible(each) for name, each in value.items()}
    return value


def fit(result: dict[str, Any], /, *, most: int = MAX_RESULT_CHARS) -> dict[str, Any]:
    """Return a result that is short enough. What was left out is said in its place."""
    if len(json.dumps(result)) <= most:
        return result
    cut = result
    for limits in CUTS:
        # Its own names are few, and the digest of a plan is among them.
        cut = {name: _cut(value, *limits) for name, value in result.items()}
        if len(json.dumps(cut)) <= most:
            break
    return cut


def _cut(value: Any, text_chars: int, entries: int, levels: int) -> Any:
    if isinstance(value, str) and len(value) > text_chars:
        return f"{value[:text_chars]}… ({len(value) - text_chars:,} characters left out)"
    if isinstance(value, (list, dict)) and value and not levels:
        return f"… ({len(value):,} left out)"
    if isinstance(value, list):
        kept = [_cut(each, text_chars, entries, levels - 1) for each in value[:entries]]
        return kept if len(value) <= entries else [*kept, f"… ({len(value) - entries:,} left out)"]
    if isinstance(value, dict):
        kept_values = {
            _cut(name, text_chars, entries, levels): _cut(each, text_chars, entries, levels - 1)
            for name, each in islice(value.items(), entries)
        }
        if len(value) > entries:
            kept_values["…"] = f"({len(value) - entries:,} left out)"
        return kept_values
    return value
