"""The words of a search for jobs and dead letters, as the CLI, the REST API and the console take
them: `type:crm.sync state:dead error:"timed out" since:2h`.

Parsing is pure. The names of tags come from the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from ..ledger.filters import JobFilter
from .dead_letters.model import DeadLetterFilter
from .render import moment

MAX_CHARS = 2000
MAX_WORDS = 20
KEY_COLONS = 4
"""A job key `domain:user:entity:operation:version` has at least this many colons."""
FIELDS = {
    "id": "ids",
    "key": "key",
    "user": "user",
    "correlation": "correlation_id",
    "type": "kind",
    "kind": "kind",
    "state": "state",
    "error": "error",
    "since": "since",
    "until": "until",
    "worker": "worker",
    "tenant": "tenant",
}
"""Words, and the fields of the filter."""
WORDS = tuple(word for word in FIELDS if word != "kind")
STATES = {
    "queued": "queued",
    "running": "running",
    "retry_wait": "retry_wait",
    "retry_scheduled": "retry_wait",
    "retrying": "retry_wait",
    "waiting": "waiting",
    "blocked": "blocked",
    "dead": "dlq",
    "dlq": "dlq",
    "replaying": "replaying",
    "done": "done",
    "discarded": "discarded",
    "cancelled": "cancelled",
}
"""Words of states, and their stored names."""
LETTER_STATES = (None, "dlq", "blocked", "replaying", "discarded")
"""States of jobs that may have a dead letter. None: any."""
LETTER_STATUSES = ("pending", "replaying", "replayed", "discarded", "all")
"""Statuses by which lists of dead letters are narrowed."""
_TOKEN = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_NAMED = re.compile(r"(?P<name>[\w.@-]+):(?P<value>.*)", re.DOTALL)


def parse_search(
    text: str, /, *, tags: Collection[str] = (), read_time: Callable[[str], datetime] = moment
) -> JobFilter:
    """Return the filter that a search means.

    A bare number is an id. Other bare words are one text: a job key, its first characters, a tag, a
    correlation id, a user or a part of an error. Quotes keep spaces and colons in a value.

    Args:
        text: The words.
        tags: Names of tags that can be searched.
        read_time: Reads the times of `since:` and `until:`.

    Returns:
        The filter.

    Raises:
        ValueError: A word is unknown, or its value is not valid.
    """
    if len(text) > MAX_CHARS or "\0" in text:
        raise ValueError(f"invalid search: use at most {MAX_CHARS:,} characters, without NUL")
    tokens = _TOKEN.findall(text)
    if len(tokens) > MAX_WORDS:
        raise ValueError(f"invalid search: it has {len(tokens)} words; use at most {MAX_WORDS}")
    fields: dict[str, Any] = {}
    tag_values: dict[str, str] = {}
    bare: list[str] = []
    for token in tokens:
        named = None if token.startswith('"') else _NAMED.fullmatch(token)
        if named is None:
            bare.append(_unquote(token))
            continue
        name, value = named["name"], _unquote(named["value"])
        if name in FIELDS:
            _set(fields, *_read_field(name, value, read_time), word=name)
        elif name in tags:
            _set(tag_values, name, value, word=name)
        elif token.count(":") >= KEY_COLONS or token.endswith("*"):
            _set(fields, *_read_field("key", token, read_time), word="key")
        elif token.count(":") > 1:  # a part of a job key
            bare.append(token)
        else:
            raise ValueError(_unknown(name, token, tags))
    if bare:
        fields |= _read_bare(" ".join(bare).strip(), fields)
    return JobFilter(**fields, tags=tag_values)


def _unquote(value: str) -> str:
    return value.replace('"', "")


def _set(fields: dict[str, Any], field: str, value: object, *, word: str) -> None:
    if field in fields:
        raise ValueError(f"invalid search: {word}: appears twice; use it once")
    fields[field] = value


def _read_field(name: str, value: str, read_time: Callable[[str], datetime]) -> tuple[str, object]:
    field = FIELDS[name]
    if not value.strip():
        raise ValueError(f"invalid search: {name}: has no value; write {name}:VALUE")
    if field == "ids":
        return field, _read_ids(value)
    if field == "state":
        state = STATES.get(re.sub(r"[\s-]+", "_", value.strip().lower()))
        if state is None:
            raise ValueError(f"unknown state {value!r}: use {', '.join(dict.fromkeys(STATES))}")
        return field, state
    if field in ("since", "until"):
        return field, read_time(value)
    if field == "key" and value.endswith("*"):
        return "key_prefix", value[:-1]
    return field, value


def _read_ids(value: str) -> tuple[int, ...]:
    numbers = value.split(",")
    if not all(_is_id(number) for number in numbers):
        raise ValueError(f"invalid id {value!r}: use a number, or numbers with commas")
    return tuple(map(int, numbers))


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 2**63


def _read_bare(text: str, fields: Mapping[str, object]) -> dict[str, object]:
    """Return the field of text without a name."""
    if _is_id(text) and "ids" not in fields:
        return {"ids": (int(text),)}
    if text.endswith("*") and len(text) > 1 and not {"key", "key_prefix"} & fields.keys():
        return {"key_prefix": text[:-1]}
    return {"text": text} if text else {}


def _unknown(name: str, token: str, tags: Collection[str]) -> str:
    listed = ", ".join([*WORDS, *sorted(tags)])
    return (
        f"unknown word {name!r} in {token!r}: use {listed}, "
        f'or quote a text that contains a colon: "{token}"'
    )


def dead_letters_only(wanted: JobFilter, /) -> DeadLetterFilter:
    """Return the filter of dead letters, for words that select nothing else.

    Raises:
        ValueError: The words have another state. The status of a dead letter is an option.
    """
    if wanted.state not in (None, "dlq"):
        raise ValueError(
            f"state:{wanted.state}: not a state of a list of dead letters; leave it out, and "
            f"choose the status ({', '.join(LETTER_STATUSES)})"
        )
    return letters_of(wanted)


def letters_of(wanted: JobFilter, /, *, limit: int | None = None) -> DeadLetterFilter:
    """Return the filter of the dead letters that a search means. Times are those of the death."""
    jobs = replace(wanted, kind=None, state=None, error=None, since=None, until=None)
    return DeadLetterFilter(
        kind=wanted.kind,
        error=wanted.error,
        since=wanted.since,
        until=wanted.until,
        jobs=None if jobs.selects_all else jobs,
        limit=limit,
    )
