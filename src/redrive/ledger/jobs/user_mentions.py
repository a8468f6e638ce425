"""Mentions of a user in texts that are not the user's alone: errors, reasons, the audit log.

A name is found as a whole word: `ann` is not found in `planned`, `ann-2` or `ann.smith`. A
pseudonym replaces it: a hash under a key that is made for one erasure and then deleted, so that
names cannot be guessed from it.

Any text can be a name: `42`, `a`, `null`. So each column has a rule that keeps its rows readable.
In JSON only string values change. Identities change only in rows of this user. Words that Redrive
compares never change.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Table,
    Text,
    and_,
    exists,
    func,
    or_,
    select,
    update,
)

from ..audit import ERASED, REDRIVE_ACTOR, content_digest
from ..db import access_tables, job_tables, partition_tables, tables
from ..stats.failure_groups import ALL_SIGNATURES

IDENTITIES = frozenset(
    """act action as batch dataset datasets kind kinds name process query query_name rewritten
    source state status store type user_hash validator version""".split()
)
"""Fields of JSON that name things of Redrive. Their values never change."""
MIN_DISTINCT_CHARS = 3
"""Shorter names are common."""
KEY_PARTS = 5
"""Parts of a job key: domain:user:entity:operation:version."""

_TIME = (
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?<![\w:])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?![\w:])"
)
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?|[{}\[\]]')
"""Strings, with the colon after the name of a field, and brackets. Of valid JSON."""


class Name(NamedTuple):
    """The name of a user in all its spellings, and its pseudonym. Immutable."""

    user: str
    spellings: tuple[str, ...]
    pattern: re.Pattern[str]
    pseudonym: str

    @property
    def is_common(self) -> bool:
        """Whether other texts likely contain it by chance: a number, a JSON word, or very short."""
        if re.fullmatch(r"[+-]?[\d.,_]+(?:[eE][+-]?\d+)?", self.user):
            return True
        words = ("null", "true", "false", "none", "nan")
        return len(self.user) < MIN_DISTINCT_CHARS or self.user.lower() in words

    def replaced(self, text: str, /) -> str:
        """Return the text with the pseudonym instead of the name. Timestamps do not change."""
        return self.pattern.sub(self._substitute, text)

    def _substitute(self, match: re.Match[str]) -> str:
        """Return a pseudonym for each spelling: texts that differ still differ afterwards."""
        spelling = match["name"]
        if spelling is None:
            return match[0]
        if spelling == self.user:
            return self.pseudonym
        return f"{self.pseudonym}.{self.spellings.index(spelling)}"


def name_of(user: str, /) -> Name:
    """Return the name with a new pseudonym."""
    in_json = (json.dumps(user)[1:-1], json.dumps(user, ensure_ascii=False)[1:-1])
    written = {user, escape(user), *in_json, quote(user, safe="")}
    spellings = tuple(sorted(written, key=lambda each: (-len(each), each)))
    alternatives = "|".join(map(re.escape, spellings))
    word = rf"(?<![\w-])(?<!\w\.)(?P<name>{alternatives})(?![\w-])(?!\.\w)"
    digest = hmac.new(secrets.token_bytes(32), user.encode(), hashlib.sha256).hexdigest()
    return Name(user, spellings, re.compile(rf"{_TIME}|{word}"), f"erased-{digest[:16]}")


def escape(user: str) -> str:
    """Return the user as it is written in a key."""
    return user.replace("%", "%25").replace(":", "%3A")


def is_key_of(table: FromClause, user: str, /) -> ColumnElement[bool]:
    """Return whether the job key of a row is of this user.

    The key of an event's job has the source in the place of the user.
    """
    key, kind, escaped = table.c.key, table.c.kind, escape(user)
    has_name = key.contains(f":{escaped}:", autoescape=True)  # is faster than the pattern
    is_user = has_name & key.regexp_match(f"^[^:]*:{re.escape(escaped)}:[^:]*:[^:]*:")
    ending = func.substr(key, func.length(key) - func.length(kind) - 3)
    is_of_handler = or_(func.substr(kind, 1, 5) == "read:", ending == ":" + kind + ":v1")
    is_of_event = (func.substr(key, 1, 6) == "event:") & is_of_handler
    return is_user & ~is_of_event


# --- Rules: the text of a column without the name

Rule: TypeAlias = Callable[[Name, str], str]


def in_text(name: Name, text: str, /) -> str:
    """Replace the name in text for people."""
    return name.replaced(text)


def in_json(name: Name, text: str, /) -> str:
    """Replace the name in string values of JSON, except identities."""
    return _in_values(text, name.replaced)


def in_reason(name: Name, text: str, /) -> str:
    """Replace the name, except in a single word: Redrive compares codes such as `lost_worker`."""
    return text if re.fullmatch(r"[\w.-]+", text) else name.replaced(text)


def in_actor(name: Name, text: str, /) -> str:
    """Replace the name, except in the actor of automatic decisions."""
    return text if text == REDRIVE_ACTOR else name.replaced(text)


def in_signature(name: Name, text: str, /) -> str:
    """Replace the name unless it is common: then it is a status, a code or an ordinary word."""
    return text if name.is_common or text == ALL_SIGNATURES else name.replaced(text)


def in_item(name: Name, text: str, /) -> str:
    """Replace the name in a key of this user. With a common name, only in a whole key."""
    parts = text.split(":")
    if len(parts) < (KEY_PARTS if name.is_common else 2) or parts[1] != escape(name.user):
        return text
    return ":".join((parts[0], name.pseudonym, *parts[2:]))


def in_customer(name: Name, text: str, /) -> str:
    """Replace the name if this user is the customer."""
    return name.pseudonym if text == name.user else text


def in_customers(name: Name, text: str, /) -> str:
    """Replace the name in a JSON list of customers."""
    return _in_values(text, lambda customer: in_customer(name, customer))


def _in_values(text: str, change: Callable[[str], str]) -> str:
    """Change the string values of JSON. All else stays byte by byte."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    outer, is_identity = [False], False

    def change_token(token: re.Match[str]) -> str:
        nonlocal is_identity
        written = token[0]
        if written in "{[":
            outer.append(is_identity)
        elif written in "}]":
            is_identity = outer.pop()
        elif token[1] is not None:
            field = json.loads(written[: token.start(1) - token.start()])
            is_identity = outer[-1] or field in IDENTITIES
        elif not is_identity:
            value = json.loads(written)
            without = change(value)
            return (
                written if without == value else json.dumps(without, ensure_ascii=written.isascii())
            )
        return written

    return _JSON_TOKEN.sub(change_token, text)


TEXTS: tuple[tuple[Table, Mapping[str, Rule]], ...] = (
    (tables.job, {"reason": in_reason, "error": in_text, "signature": in_signature}),
    (job_tables.tag, {"value": in_signature}),
    (job_tables.step, {"error": in_text}),
    (job_tables.progress, {"note": in_text}),
    (job_tables.pause, {"actor": in_actor, "because": in_text}),
    (job_tables.limit, {"actor": in_actor, "because": in_text}),
    (access_tables.access_token, {"created_by": in_actor}),
    (access_tables.session, {"name": in_actor, "via": in_text}),
    (tables.attempt, {"reason": in_reason, "error": in_text}),
    (tables.dead, {"reason": in_reason, "error": in_text, "signature": in_signature}),
    (
        tables.sweep,
        {"actor": in_actor, "because": in_text, "selection": in_json, "reason": in_text},
    ),
    (tables.sweep_item, {"note": in_reason}),
    (tables.item, {"item": in_item, "reason": in_text}),
    (tables.kind, {"reason": in_text}),
    (tables.worker, {"info": in_json}),
    (tables.key, {"error": in_json}),
    (tables.failure, {"error": in_text, "signature": in_signature}),
    (tables.failure_slot, {"signature": in_signature}),
    (tables.failure_delta, {"error": in_text, "signature": in_signature}),
    (
        partition_tables.partition,
        {"customer_id": in_customer, "reason": in_reason, "error": in_text},
    ),
    (partition_tables.run, {"note": in_reason}),
    (partition_tables.verdict, {"checks": in_json, "reason": in_reason, "message": in_text}),
    (partition_tables.marker, {"cause": in_reason, "actor": in_actor, "because": in_text}),
    (partition_tables.source, {"because": in_text, "actor": in_actor}),
    (partition_tables.range_, {"customers": in_customers}),
)
"""Columns that may mention a user. The user's own jobs are erased as a whole."""
AUDIT_RULES: Mapping[str, Rule] = {"actor": in_actor, "because": in_text, "what": in_json}


def mentions(
    connection: Connection, name: Name, /
) -> Iterator[tuple[Table, dict[str, Any], dict[str, str]]]:
    """Yield rows that mention the name: the table, the primary key, and the texts without it."""
    for table, rules in TEXTS:
        columns = [table.c[column] for column in rules]
        keys = table.primary_key.columns
        texts = (each.label(f"text_{each.name}") for each in columns)
        query = select(*keys, *texts).where(_contains(columns, name))
        if table is partition_tables.partition:
            query = query.where(~and_(table.c.customer_id == name.user, _is_queued()))
        elif table is partition_tables.range_:
            query = query.where(~_is_open())
        for row in connection.execute(query).mappings():
            changed = _without_name(name, {each: row[f"text_{each}"] for each in rules}, rules)
            if changed:
                yield table, {each.name: row[each.name] for each in keys}, changed


def _without_name(
    name: Name, texts: Mapping[str, str | None], rules: Mapping[str, Rule]
) -> dict[str, str]:
    """Return the texts that mention the name, without it."""
    without = {column: rules[column](name, text) for column, text in texts.items() if text}
    return {column: text for column, text in without.items() if text != texts[column]}


def queued_partitions(connection: Connection, name: Name, /) -> int:
    """Count the partitions of this customer that are queued or running."""
    partition = partition_tables.partition.c
    query = select(partition.id).where(partition.customer_id == name.user, _is_queued())
    return len(connection.execute(query).all())


def open_backfills(connection: Connection, name: Name, /) -> int:
    """Count the backfills for this customer that have not ended and need the customer's id."""
    customers = partition_tables.range_.c.customers
    query = select(customers).where(_contains([customers], name), _is_open())
    return sum(in_customers(name, text) != text for (text,) in connection.execute(query))


def _is_queued() -> ColumnElement[bool]:
    work, partition = partition_tables.work.c, partition_tables.partition.c
    return exists().where(work.partition_id == partition.id)


def _is_open() -> ColumnElement[bool]:
    sweep = tables.sweep.c
    is_ended = sweep.state.in_(("cancelled", "done"))
    return exists().where(sweep.id == partition_tables.range_.c.sweep_id, ~is_ended)


def replace(
    connection: Connection, table: Table, key: dict[str, Any], texts: dict[str, str], /
) -> None:
    """Write the texts of a row without the name."""
    where = [table.c[name] == value for name, value in key.items()]
    connection.execute(update(table).where(*where).values(**texts))


def audit_mentions(connection: Connection, name: Name, /) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield audit entries that mention the name: the number, and the texts without the name."""
    columns = [tables.audit.c[column] for column in AUDIT_RULES]
    query = select(tables.audit.c.number, tables.audit.c.action, *columns)
    for row in connection.execute(query.where(_contains(columns, name))).mappings():
        # `what` of an erasure has only pseudonyms, and the digests of other entries. It must stay.
        is_erasure = row["action"] == ERASED
        texts = {each: row[each] for each in AUDIT_RULES if not is_erasure or each != "what"}
        changed = _without_name(name, texts, AUDIT_RULES)
        if changed:
            yield row["number"], changed


def rewrite_audit(connection: Connection, name: Name, /) -> dict[str, str]:
    """Remove the name from the audit log.

    Hashes do not change, so that the chain and all anchors stay valid. The entry of the erasure
    stores the digests of the new texts, by which `verify` accepts them.

    Returns:
        The digests of the new texts, by the number of the entry.
    """
    digests = {}
    for number, texts in list(audit_mentions(connection, name)):
        is_entry = tables.audit.c.number == number
        connection.execute(update(tables.audit).where(is_entry).values(**texts))
        row = connection.execute(select(tables.audit).where(is_entry)).one()
        digests[str(number)] = content_digest(row)
    return digests


def _contains(columns: Sequence[ColumnElement[Any]], name: Name) -> ColumnElement[bool]:
    texts = [column.cast(Text) for column in columns]
    return or_(*(text.contains(each, autoescape=True) for text in texts for each in name.spellings))
