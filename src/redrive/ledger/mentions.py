"""Mentions: a user's name in texts that are not theirs alone: errors, reasons, selections, the audit log.

A name is found as a whole word, so that `ann` is not found in `planned`. It is replaced by a pseudonym: a hash under a key that
is made for one erasure and thrown away, so that nobody can try names on it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from sqlalchemy import ColumnElement, Connection, Table, Text, exists, or_, select, update

from . import failure_tables, partition_tables, tables
from .audit import content_digest

TEXTS: tuple[tuple[Table, tuple[str, ...]], ...] = (
    (tables.job, ("reason", "error")),
    (tables.attempt, ("reason", "error")),
    (tables.dead, ("reason", "error", "signature", "source_id")),
    (tables.event, ("event_id", "source_id", "headers")),
    (tables.sweep, ("actor", "because", "selection", "reason")),
    (tables.sweep_item, ("note",)),
    (tables.item, ("item", "reason")),
    (tables.kind, ("reason", "signature")),
    (tables.worker, ("info",)),
    (tables.key, ("error",)),
    (failure_tables.failure, ("error", "signature")),
    (failure_tables.failure_slot, ("signature",)),
    (failure_tables.failure_delta, ("error", "signature")),
    (partition_tables.partition, ("customer_id", "reason", "error")),
    (partition_tables.run, ("note",)),
    (partition_tables.verdict, ("checks", "reason", "message", "manifest")),
    (partition_tables.marker, ("cause", "actor", "because")),
    (partition_tables.source, ("because", "actor", "signature")),
    (partition_tables.range_, ("customers", "datasets")),
)
"""Columns that may mention a user. Their own jobs are erased as a whole; a partition is left while it is queued or running."""


class Name(NamedTuple):
    """A user's name as it may be written, and what stands in its place. Immutable."""

    spellings: tuple[str, ...]
    pattern: re.Pattern[str]
    pseudonym: str

    def replaced(self, text: str, /) -> str:
        """The text without the name."""
        return self.pattern.sub(self.pseudonym, text)


def name_of(user: str, /) -> Name:
    """The name, with a pseudonym of its own."""
    escaped = user.replace("%", "%25").replace(":", "%3A")
    written = (user, escaped, json.dumps(user)[1:-1], json.dumps(user, ensure_ascii=False)[1:-1], quote(user, safe=""))
    spellings = tuple(sorted(set(written), key=len, reverse=True))
    alternatives = "|".join(map(re.escape, spellings))
    pseudonym = "erased-" + hmac.new(secrets.token_bytes(32), user.encode(), hashlib.sha256).hexdigest()[:16]
    return Name(spellings, re.compile(rf"(?<![\w-])(?:{alternatives})(?![\w-])"), pseudonym)


def mentions(connection: Connection, name: Name, /) -> Iterator[tuple[Table, dict[str, Any], dict[str, str]]]:
    """Rows that mention the name: the table, the row's primary key, and its texts without the name."""
    for table, columns in TEXTS:
        found = [table.c[column] for column in columns]
        if not table.primary_key.columns:
            continue
        query = select(*table.primary_key.columns, *(each.label(f"text_{each.name}") for each in found)).where(
            _alike(found, name)
        )
        if table is partition_tables.partition:
            query = query.where(~_is_queued())
        for row in connection.execute(query).mappings():
            changed = {
                each.name: name.replaced(row[f"text_{each.name}"])
                for each in found
                if row[f"text_{each.name}"] and name.pattern.search(row[f"text_{each.name}"])
            }
            if changed:
                yield table, {each.name: row[each.name] for each in table.primary_key.columns}, changed


def queued_partitions(connection: Connection, name: Name, /) -> int:
    """Partitions of this customer that are queued or running."""
    customer = partition_tables.partition.c.customer_id
    query = select(customer).where(_alike([customer], name), _is_queued())
    return sum(name.pattern.search(found) is not None for (found,) in connection.execute(query))


def _is_queued() -> ColumnElement[bool]:
    return exists().where(partition_tables.work.c.partition_id == partition_tables.partition.c.id)


def replace(connection: Connection, table: Table, key: dict[str, Any], changed: dict[str, str], /) -> None:
    """Write one row's texts without the name."""
    where = [table.c[name] == value for name, value in key.items()]
    connection.execute(update(table).where(*where).values(**changed))


def audited(connection: Connection, name: Name, /) -> Iterator[tuple[int, dict[str, str]]]:
    """Entries of the audit log that mention the name: the number, and the texts without the name."""
    columns = [tables.audit.c[column] for column in ("actor", "because", "what")]
    for row in connection.execute(select(tables.audit.c.number, *columns).where(_alike(columns, name))).mappings():
        changed = {each.name: name.replaced(row[each.name]) for each in columns if name.pattern.search(row[each.name])}
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
