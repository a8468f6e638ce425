"""Mentions: a user's name in texts that are not theirs alone: errors, reasons, selections, the audit log.

A name is found as a whole word: `ann` is not found in `planned`, `ann-2` or `ann.smith`. A pseudonym replaces it: a hash under a
key that is made for one erasure and thrown away, so that names cannot be guessed from it.

Any text can be a name: `42`, `a`, `null`. So each column has a rule that keeps its rows readable. In JSON only string values
change, identities change only in rows that are this user's, and words that Redrive compares never change.
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

from sqlalchemy import ColumnElement, Connection, Table, Text, and_, exists, or_, select, update

from ..audit import ERASED, OURSELVES, content_digest
from ..db import failure_tables, partition_tables, tables
from ..stats.failure_deltas import WHOLE

IDENTITIES = frozenset(
    "act action batch dataset datasets kind kinds name process query query_name rewritten source state status store type "
    "user_hash validator version".split()
)
"""Fields of JSON that name things of Redrive. Their values never change."""
SHORTEST = 3
"""Characters of a name that is not common."""
WHOLE_KEY = 5
"""Parts of a job key: domain:user:entity:operation:version."""

_TIME = (
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?<![\w:])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?![\w:])"
)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?|[{}\[\]]')
"""Of valid JSON: strings, with the colon after a field's name, and brackets."""


class Name(NamedTuple):
    """A user's name as it may be written, and its pseudonym. Immutable."""

    user: str
    spellings: tuple[str, ...]
    pattern: re.Pattern[str]
    pseudonym: str

    @property
    def is_common(self) -> bool:
        """Whether other texts are likely to contain it by chance: a number, a word of JSON, or very short."""
        number = re.fullmatch(r"[+-]?[\d.,_]+(?:[eE][+-]?\d+)?", self.user)
        return bool(number) or len(self.user) < SHORTEST or self.user.lower() in ("null", "true", "false", "none", "nan")

    def replaced(self, text: str, /) -> str:
        """The text without the name. Timestamps stay whole."""
        return self.pattern.sub(self._instead, text)

    def _instead(self, found: re.Match[str]) -> str:
        """Each spelling has a pseudonym of its own: texts that differ still differ afterwards."""
        spelling = found["name"]
        if spelling is None:
            return found[0]
        return self.pseudonym if spelling == self.user else f"{self.pseudonym}.{self.spellings.index(spelling)}"


def name_of(user: str, /) -> Name:
    """The name, with a pseudonym of its own."""
    written = (user, _escaped(user), json.dumps(user)[1:-1], json.dumps(user, ensure_ascii=False)[1:-1], quote(user, safe=""))
    spellings = tuple(sorted(set(written), key=lambda each: (-len(each), each)))
    alternatives = "|".join(map(re.escape, spellings))
    word = rf"(?<![\w-])(?<!\w\.)(?P<name>{alternatives})(?![\w-])(?!\.\w)"
    pseudonym = "erased-" + hmac.new(secrets.token_bytes(32), user.encode(), hashlib.sha256).hexdigest()[:16]
    return Name(user, spellings, re.compile(rf"{_TIME}|{word}"), pseudonym)


def _escaped(user: str) -> str:
    """As it is written in a key."""
    return user.replace("%", "%25").replace(":", "%3A")


# ---- rules: a column's text without the name ----

Rule: TypeAlias = Callable[[Name, str], str]


def in_text(name: Name, text: str, /) -> str:
    """In words for people."""
    return name.replaced(text)


def in_json(name: Name, text: str, /) -> str:
    """In string values, except identities; not in numbers, fields' names, or text that is not JSON."""
    return _in_values(text, name.replaced)


def in_reason(name: Name, text: str, /) -> str:
    """A single word is a code that Redrive compares, such as `lost_worker`."""
    return text if re.fullmatch(r"[\w.-]+", text) else name.replaced(text)


def in_actor(name: Name, text: str, /) -> str:
    """Not in the name under which Redrive itself acts."""
    return text if text == OURSELVES else name.replaced(text)


def in_signature(name: Name, text: str, /) -> str:
    """Signatures group the errors of all users. A common name in one is a status, a code or an ordinary word."""
    return text if name.is_common or text == WHOLE else name.replaced(text)


def in_item(name: Name, text: str, /) -> str:
    """Only in a key of this user. A common name needs the whole form of a key: `tile:42` is a tile."""
    parts = text.split(":")
    if len(parts) < (WHOLE_KEY if name.is_common else 2) or parts[1] != _escaped(name.user):
        return text
    return ":".join((parts[0], name.pseudonym, *parts[2:]))


def in_customer(name: Name, text: str, /) -> str:
    """Only if this user is the customer."""
    return name.pseudonym if text == name.user else text


def in_customers(name: Name, text: str, /) -> str:
    """The same in a JSON list."""
    return _in_values(text, lambda customer: in_customer(name, customer))


def _in_values(text: str, change: Callable[[str], str]) -> str:
    """JSON with its string values changed. All else stays as it was written, byte by byte."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    around, is_identity = [False], False

    def changed(token: re.Match[str]) -> str:
        nonlocal is_identity
        written = token[0]
        if written in "{[":
            around.append(is_identity)
        elif written in "}]":
            is_identity = around.pop()
        elif token[1] is not None:
            is_identity = around[-1] or json.loads(written[: token.start(1) - token.start()]) in IDENTITIES
        elif not is_identity:
            value = json.loads(written)
            without = change(value)
            return written if without == value else json.dumps(without, ensure_ascii=written.isascii())
        return written

    return _TOKEN.sub(changed, text)


TEXTS: tuple[tuple[Table, Mapping[str, Rule]], ...] = (
    (tables.job, {"reason": in_reason, "error": in_text}),
    (tables.attempt, {"reason": in_reason, "error": in_text}),
    (tables.dead, {"reason": in_reason, "error": in_text, "signature": in_signature}),
    (tables.sweep, {"actor": in_actor, "because": in_text, "selection": in_json, "reason": in_text}),
    (tables.sweep_item, {"note": in_reason}),
    (tables.item, {"item": in_item, "reason": in_text}),
    (tables.kind, {"reason": in_text}),
    (tables.worker, {"info": in_json}),
    (tables.key, {"error": in_json}),
    (failure_tables.failure, {"error": in_text, "signature": in_signature}),
    (failure_tables.failure_slot, {"signature": in_signature}),
    (failure_tables.failure_delta, {"error": in_text, "signature": in_signature}),
    (partition_tables.partition, {"customer_id": in_customer, "reason": in_reason, "error": in_text}),
    (partition_tables.run, {"note": in_reason}),
    (partition_tables.verdict, {"checks": in_json, "reason": in_reason, "message": in_text}),
    (partition_tables.marker, {"cause": in_reason, "actor": in_actor, "because": in_text}),
    (partition_tables.source, {"because": in_text, "actor": in_actor}),
    (partition_tables.range_, {"customers": in_customers}),
)
"""Columns that may mention a user. Their own jobs are erased as a whole."""
AUDITED: Mapping[str, Rule] = {"actor": in_actor, "because": in_text, "what": in_json}


def mentions(connection: Connection, name: Name, /) -> Iterator[tuple[Table, dict[str, Any], dict[str, str]]]:
    """Rows that mention the name: the table, the row's primary key, and its texts without the name."""
    for table, rules in TEXTS:
        columns = [table.c[column] for column in rules]
        keys = table.primary_key.columns
        query = select(*keys, *(each.label(f"text_{each.name}") for each in columns)).where(_alike(columns, name))
        if table is partition_tables.partition:
            query = query.where(~and_(table.c.customer_id == name.user, _is_queued()))
        elif table is partition_tables.range_:
            query = query.where(~_is_open())
        for row in connection.execute(query).mappings():
            changed = _changed(name, {column: row[f"text_{column}"] for column in rules}, rules)
            if changed:
                yield table, {each.name: row[each.name] for each in keys}, changed


def _changed(name: Name, texts: Mapping[str, str | None], rules: Mapping[str, Rule]) -> dict[str, str]:
    """The texts that mention the name, without it."""
    without = {column: rules[column](name, text) for column, text in texts.items() if text}
    return {column: text for column, text in without.items() if text != texts[column]}


def queued_partitions(connection: Connection, name: Name, /) -> int:
    """Partitions of this customer that are queued or running: left until they have ended."""
    query = select(partition_tables.partition.c.id).where(partition_tables.partition.c.customer_id == name.user, _is_queued())
    return len(connection.execute(query).all())


def open_backfills(connection: Connection, name: Name, /) -> int:
    """Backfills for this customer that have not ended: they still need the customer's id."""
    customers = partition_tables.range_.c.customers
    query = select(customers).where(_alike([customers], name), _is_open())
    return sum(in_customers(name, text) != text for (text,) in connection.execute(query))


def _is_queued() -> ColumnElement[bool]:
    return exists().where(partition_tables.work.c.partition_id == partition_tables.partition.c.id)


def _is_open() -> ColumnElement[bool]:
    sweep = tables.sweep.c
    return exists().where(sweep.id == partition_tables.range_.c.sweep_id, sweep.state.not_in(("cancelled", "done")))


def replace(connection: Connection, table: Table, key: dict[str, Any], changed: dict[str, str], /) -> None:
    """Write one row's texts without the name."""
    where = [table.c[name] == value for name, value in key.items()]
    connection.execute(update(table).where(*where).values(**changed))


def audited(connection: Connection, name: Name, /) -> Iterator[tuple[int, dict[str, str]]]:
    """Entries of the audit log that mention the name: the number, and the texts without the name."""
    columns = [tables.audit.c[column] for column in AUDITED]
    query = select(tables.audit.c.number, tables.audit.c.action, *columns).where(_alike(columns, name))
    for row in connection.execute(query).mappings():
        # An entry about an erasure has pseudonyms and digests only: it vouches for others, and must stay as it is.
        columns_here = [column for column in AUDITED if row["action"] != ERASED or column != "what"]
        changed = _changed(name, {column: row[column] for column in columns_here}, AUDITED)
        if changed:
            yield row["number"], changed


def rewrite(connection: Connection, name: Name, /) -> dict[str, str]:
    """Take the name out of the audit log; the digests of the entries' new texts, by their numbers.

    Hashes stay as they were, so that the chain and all anchors still hold. The digests go into the entry about the erasure: it
    vouches for the new texts.
    """
    digests = {}
    for number, changed in list(audited(connection, name)):
        connection.execute(update(tables.audit).where(tables.audit.c.number == number).values(**changed))
        row = connection.execute(select(tables.audit).where(tables.audit.c.number == number)).one()
        digests[str(number)] = content_digest(row)
    return digests


def _alike(columns: Sequence[ColumnElement[Any]], name: Name) -> ColumnElement[bool]:
    return or_(*(column.cast(Text).contains(text, autoescape=True) for column in columns for text in name.spellings))
