"""Stored sweeps over partitions: bulk operations of operators and schedules.

A range (backfills, schedules) is customers times days, whose partitions have no rows before their
turn. Other sweeps have a frozen list of partition ids.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, exists, func, insert, or_, select, text

from ...ledger.db.partition_tables import SWEPT, range_, work
from ...ledger.db.session import Session
from ...ledger.db.tables import sweep
from ..model import LANE_NAMES, LaneName

ACTS = ("backfill", "fresh", "retry", "reprocess", "revalidate")
"""Acts of sweeps over partitions. Other acts are over dead letters."""
RANGE_ACTS = ("backfill", "fresh")
UNFINISHED = ("running", "paused", "halted")
"""States of sweeps that have not ended."""
DEFAULT_SHARE = 0.15
"""Share of the capacity that a sweep has in its lane."""


class PartitionSweep(NamedTuple):
    """A sweep over partitions, without its customers and ids, which may be many."""

    id: int
    act: str
    state: str
    actor: str
    because: str
    rate: float | None
    canary: int
    passed: bool
    total: int
    made: int
    skipped: int
    next_at: datetime
    created_at: datetime
    reason: str | None
    lane: int
    datasets: str
    since: date | None
    until: date | None
    newest: bool
    cursor: int
    share: float
    halt_on: float | None
    again: bool
    amount: int | None
    clear: bool
    skips: str
    ok: int
    failed: int
    accepted: int
    rejected: int
    pardoned: int
    pardoned_rejected: int
    withdrawn: bool

    @property
    def dataset_names(self) -> list[tuple[str, str]]:
        """Sources and queries."""
        return [(source, query) for source, query in json.loads(self.datasets)]

    @property
    def sources(self) -> set[str]:
        """Its sources."""
        return {source for source, _ in self.dataset_names}

    @property
    def lane_name(self) -> LaneName:
        """Its lane."""
        return LANE_NAMES[self.lane]

    @property
    def is_range(self) -> bool:
        """Whether its partitions have no rows before their turn."""
        return self.act in RANGE_ACTS

    @property
    def open_count(self) -> int:
        """Number of partitions that were queued and have not ended."""
        return self.made - self.ok - self.failed


SWEEP_FIELDS = frozenset(sweep.c.keys())
_COLUMNS = tuple(
    (sweep if name in SWEEP_FIELDS else range_).c[name] for name in PartitionSweep._fields
)
SWEEPS: Select[Any] = select(*_COLUMNS).join(range_, range_.c.sweep_id == sweep.c.id)
# The conditions on the state are literal, as in the partial indexes. `id + 0` stops SQLite from
# walking all sweeps ever to avoid a sort. Postgres locks in this order.
RUNNING = SWEEPS.where(text("redrive_sweep.state = 'running'"), sweep.c.act.in_(ACTS)).order_by(
    sweep.c.id + 0
)
_own_work = select(work.c.partition_id).where(work.c.sweep_id == sweep.c.id, SWEPT)
CANCELLED = SWEEPS.where(
    text("redrive_sweep.state = 'cancelled'"),
    range_.c.withdrawn.is_(False),
    # If all its work is running, there is nothing to withdraw yet.
    or_(exists(_own_work.where(work.c.lease_until.is_(None))), ~exists(_own_work)),
)


def load_running(
    session: Session, datasets: Iterable[tuple[str, str]], /, *, lock: bool = False
) -> list[PartitionSweep]:
    """Return the running sweeps over any of these datasets, by id.

    Args:
        datasets: Sources and queries.
        lock: Lock them, so that nothing pauses or cancels one meanwhile.
    """
    wanted = set(datasets)
    rows = session.core.execute(RUNNING.with_for_update(of=sweep) if lock else RUNNING)
    sweeps = map(PartitionSweep._make, rows)
    return [each for each in sweeps if not wanted.isdisjoint(each.dataset_names)]


def load_sweep(
    connection: Connection, sweep_id: int, /, *, lock: bool = False
) -> PartitionSweep | None:
    """Return a sweep over partitions. None: there is none, or it is over dead letters."""
    query = SWEEPS.where(sweep.c.id == sweep_id)
    row = connection.execute(query.with_for_update(of=sweep) if lock else query).first()
    return None if row is None else PartitionSweep._make(row)


def load_cancelled(connection: Connection, /, *, limit: int = 10) -> list[PartitionSweep]:
    """Return cancelled sweeps whose queued work is not withdrawn yet."""
    return [PartitionSweep._make(row) for row in connection.execute(CANCELLED.limit(limit))]


def load_unfinished(connection: Connection, acts: Sequence[str], /) -> list[PartitionSweep]:
    """Return the sweeps of these acts that have not ended, by id."""
    query = SWEEPS.where(sweep.c.state.in_(UNFINISHED), sweep.c.act.in_(acts))
    return [PartitionSweep._make(row) for row in connection.execute(query.order_by(sweep.c.id))]


def insert_sweep(
    session: Session,
    act: str,
    now: datetime,
    /,
    *,
    actor: str,
    because: str,
    total: int,
    **fields: Any,
) -> PartitionSweep:
    """Store a sweep. One without partitions is done.

    Args:
        session: The session, in a transaction.
        act: What it does.
        actor: Who requested it.
        because: Why.
        total: Number of partitions.
        fields: Other columns of the sweep and its range.
    """
    own = {name: value for name, value in fields.items() if name in SWEEP_FIELDS}
    of_range = {name: value for name, value in fields.items() if name not in SWEEP_FIELDS}
    statement = insert(sweep).values(
        act=act,
        actor=actor,
        because=because,
        total=total,
        next_at=now,
        created_at=now,
        updated_at=now,
        **own,
        **({} if total else {"state": "done", "ended_at": now}),
    )
    sweep_id = session.core.execute(statement.returning(sweep.c.id)).scalar_one()
    of_range = {"share": DEFAULT_SHARE} | of_range
    session.core.execute(insert(range_).values(sweep_id=sweep_id, **of_range))
    stored = load_sweep(session.core, sweep_id)
    assert stored is not None
    return stored


def load_picks(connection: Connection, sweep_id: int, start: int, count: int, /) -> list[int]:
    """Return some of the frozen ids of a sweep, from a position on."""
    part = func.substr(range_.c.picks, start * 8 + 1, count * 8)
    stored = connection.execute(select(part).where(range_.c.sweep_id == sweep_id)).scalar_one()
    return unpack_ids(bytes(stored))


def pack_ids(ids: Sequence[int], /) -> bytes:
    """Return ids in eight bytes each, so that a part can be read without the rest."""
    return struct.pack(f">{len(ids)}q", *ids)


def unpack_ids(stored: bytes | bytearray, /) -> list[int]:
    """Return packed ids."""
    return list(struct.unpack(f">{len(stored) // 8}q", stored))
