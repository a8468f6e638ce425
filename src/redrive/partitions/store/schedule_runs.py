"""Fired: schedules of datasets as workers stored them, each with its last run. Reading only."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import NamedTuple

from sqlalchemy import Connection, select

from ...ledger.db.partition_tables import dataset, range_
from ...ledger.db.tables import sweep

LOOKED_AT = 1000
"""Newest runs of all schedules among which the last run of each dataset is looked up."""


class LastRun(NamedTuple):
    """The last run of a dataset's schedule: the partitions of one day."""

    sweep_id: int
    state: str
    day: date
    total: int
    failed: int
    ended_at: datetime | None


class Fired(NamedTuple):
    """The schedule of a dataset, as a worker stored it."""

    cron: str
    fired_at: datetime | None
    """The last handled time of the schedule, or else when a worker first saw the dataset."""
    last: LastRun | None


_STORED = select(
    dataset.c.source,
    dataset.c.query_name,
    dataset.c.cron,
    dataset.c.fired_at,
).where(dataset.c.cron.is_not(None))
_RUNS = (
    select(
        range_.c.datasets,
        sweep.c.id,
        sweep.c.state,
        range_.c.since,
        sweep.c.total,
        range_.c.failed,
        sweep.c.ended_at,
    )
    .join(range_, range_.c.sweep_id == sweep.c.id)
    .where(sweep.c.act == "fresh")
    .order_by(sweep.c.id.desc())
    .limit(LOOKED_AT)
)


def schedules(connection: Connection, /) -> dict[tuple[str, str], Fired]:
    """Return the stored schedules by source and query."""
    stored = connection.execute(_STORED).all()
    runs: dict[tuple[str, str], LastRun] = {}
    for row in connection.execute(_RUNS) if stored else ():
        for source, query in json.loads(row[0]):
            runs.setdefault((source, query), LastRun._make(row[1:]))
    return {(row[0], row[1]): Fired(row[2], row[3], runs.get((row[0], row[1]))) for row in stored}
