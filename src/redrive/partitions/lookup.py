"""Lookup: partitions by their names, as many at once as are asked for, each by the index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ARRAY, Connection, Date, Text, bindparam, cast, func, select, text

from ..ledger.partition_tables import partition
from .partition import Partition
from .rows import ROW, Row

_here = (partition.c.source == bindparam("of_source"), partition.c.query_name == bindparam("of_query"))
# CROSS JOIN, which SQLite never turns around: it would read the whole dataset and look each row up in the list.
_ON_SQLITE: Any = text(
    # Names of our own columns: nobody else's words.
    f"""SELECT {", ".join(f"p.{column.name}" for column in ROW)}
    FROM json_each(:keys) AS k CROSS JOIN redrive_partition AS p ON p.source = :of_source AND p.query_name = :of_query
    AND p.logical_date = json_extract(k.value, '$[0]') AND p.customer_id = json_extract(k.value, '$[1]')"""  # noqa: S608
).columns(*ROW)
_arrays = (cast(bindparam("dates"), ARRAY(Date)), cast(bindparam("customers"), ARRAY(Text)))
_paired = func.unnest(*_arrays).table_valued("day", "customer").render_derived(name="paired")
_ON_POSTGRES: Any = (
    select(*ROW)
    .select_from(_paired)
    .where(*_here, partition.c.logical_date == _paired.c.day, partition.c.customer_id == _paired.c.customer)
)


def known_by(connection: Connection, source: str, query_name: str, keys: Sequence[Partition], /) -> dict[Partition, Row]:
    """Those of one dataset's partitions that have rows."""
    given: dict[str, Any] = {"of_source": source, "of_query": query_name}
    on_sqlite = connection.dialect.name == "sqlite"
    if on_sqlite:
        given["keys"] = json.dumps([[key.logical_date.isoformat(), key.customer_id] for key in keys])
    else:
        given |= {"dates": [key.logical_date for key in keys], "customers": [key.customer_id for key in keys]}
    found = connection.execute(_ON_SQLITE if on_sqlite else _ON_POSTGRES, given)
    return {row.partition: row for row in map(Row._make, found)}
