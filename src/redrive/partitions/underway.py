"""Under way: which days have something queued or running, in which lane; from a bounded look at the work there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import Any, TypeAlias

from sqlalchemy import Connection, text

from .record import LANES, Lane

LOOKED_AT = 3000
"""Rows of work, together: of each dataset and lane the same number, however many there are."""
Days: TypeAlias = dict[tuple[str, str, date], dict[Lane, int]]


def days(connection: Connection, datasets: Sequence[tuple[str, str]], since: date, until: date, /) -> Days:
    """How much of each day, by lane."""
    if not datasets:
        return {}
    on_sqlite = connection.dialect.name == "sqlite"
    given: dict[str, Any] = {"each": max(20, LOOKED_AT // (4 * len(datasets))), "since": since, "until": until}
    if on_sqlite:
        given |= {"datasets": json.dumps(datasets), "since": since.isoformat(), "until": until.isoformat()}
    else:
        given |= {"sources": [source for source, _ in datasets], "queries": [query for _, query in datasets]}
    found: Days = {}
    for source, query, on, lane, many in connection.execute(_SQLITE if on_sqlite else _POSTGRES, given):
        day = found.setdefault((source, query, date.fromisoformat(on) if on_sqlite else on), {})
        day[LANES[lane]] = day.get(LANES[lane], 0) + many
    return found


# As the indexes begin: what waits by lane, and what is running. SQLite has no LATERAL, but functions of tables that see what
# stands before them; and a CROSS JOIN is done in the order in which it is written.
_SOME = "FROM redrive_partition_work WHERE source = d.source AND query_name = d.query AND"
_WAITS, _RUNS = f"{_SOME} lane = l.lane AND lease_until IS NULL", f"{_SOME} lease_until IS NOT NULL"
_LANES = ", ".join(f"({lane})" for lane in range(len(LANES)))
_BY = "GROUP BY 1, 2, 3, 4"


def _on_sqlite(some: str, lanes: str) -> str:
    picked = f"SELECT json_group_array(json_array(partition_id, lane)) FROM (SELECT partition_id, lane {some} LIMIT :each)"  # noqa: S608
    return f"""SELECT p.source, p.query_name, p.logical_date, json_extract(w.value, '$[1]'), count(*)
FROM (SELECT json_extract(value, '$[0]') AS source, json_extract(value, '$[1]') AS query FROM json_each(:datasets)) AS d {lanes}
CROSS JOIN json_each(({picked})) AS w CROSS JOIN redrive_partition AS p
WHERE p.id = json_extract(w.value, '$[0]') AND +p.logical_date BETWEEN :since AND :until {_BY}"""  # noqa: S608  # our own words


def _on_postgres(some: str, lanes: str) -> str:
    return f"""SELECT p.source, p.query_name, p.logical_date, w.lane, count(*)
FROM unnest(CAST(:sources AS text[]), CAST(:queries AS text[])) AS d (source, query) {lanes}
CROSS JOIN LATERAL (SELECT partition_id, lane {some} LIMIT :each) AS w
JOIN redrive_partition AS p ON p.id = w.partition_id WHERE p.logical_date BETWEEN :since AND :until {_BY}"""  # noqa: S608


_SQLITE = text(
    " UNION ALL ".join(
        (_on_sqlite(_WAITS, f"CROSS JOIN (SELECT column1 AS lane FROM (VALUES {_LANES})) AS l"), _on_sqlite(_RUNS, ""))  # noqa: S608
    )
)
_POSTGRES = text(" UNION ALL ".join((_on_postgres(_WAITS, f"CROSS JOIN (VALUES {_LANES}) AS l (lane)"), _on_postgres(_RUNS, ""))))
