"""Rows: reading and writing what is stored of partitions, inside a transaction that is open.

In one order for everybody, so that two never wait for each other: sources, sweeps, partitions by their ids, work, runs,
verdicts, markers, ranges, rollups. Whoever holds a source's row alone hands out, or takes back, work that nobody has yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar

from sqlalchemy import Connection, bindparam, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ...ledger.db.partition_tables import marker, partition, range_, rollup, run, source, verdict, work
from ...ledger.db.session import Session
from ...ledger.ledger import Ledger
from ..key import Partition
from ..model import LANES, SHADES, Decision, Kind, Lane, Shade, Status
from ..status import shade, stored
from .changes import Among, added, inserted, updated

CHUNK = 1000
"""Ids in one statement."""
POLICY = "redrive"
"""Who acts where the policy decides."""
Opened: TypeAlias = Ledger | Callable[[], Ledger]
T = TypeVar("T")


def opened(ledger: Opened, /) -> Callable[[], Ledger]:
    """A ledger that may not be open yet."""
    return (lambda: ledger) if isinstance(ledger, Ledger) else ledger


class Row(NamedTuple):
    """A partition's outcomes."""

    id: int
    source: str
    query_name: str
    logical_date: date
    customer_id: str
    status: Status
    shade: int
    current_run_id: str | None
    current_raw_id: str | None
    current_attempt_no: int
    record_count: int | None
    attempt_count: int
    dispatch_count: int
    last_verdict: Decision | None
    verdict_at: datetime | None
    reason: str | None
    error: str | None
    updated_at: datetime

    @property
    def partition(self) -> Partition:
        """What it is about."""
        return Partition(self.source, self.customer_id, self.query_name, self.logical_date)

    @property
    def dataset(self) -> tuple[str, str]:
        """Whose it is."""
        return self.source, self.query_name

    @property
    def seen(self) -> Shade:
        """Its shade by name."""
        return SHADES[self.shade]

    def shaded(self, terminal: bool, /) -> Row:
        """With the shade that its outcomes have."""
        return self._replace(shade=stored(shade(self.status, self.last_verdict, terminal)))


class Work(NamedTuple):
    """What is to be done to a partition, or is being done."""

    partition_id: int
    source: str
    query_name: str
    lane: int
    sweep_id: int
    due_at: datetime
    queued_at: datetime
    kind: Kind
    raw_run_id: str | None
    seed: float
    strategy: str | None
    lost: int
    attempt_no: int | None
    run_id: str | None
    worker: str | None
    lease_until: datetime | None

    @property
    def in_lane(self) -> Lane:
        """Its lane by name."""
        return LANES[self.lane]

    @property
    def leased(self) -> bool:
        """Whether somebody has it."""
        return self.lease_until is not None

    def released(self, due: datetime, strategy: str, /) -> Work:
        """Back in the queue."""
        return self._replace(due_at=due, strategy=strategy, attempt_no=None, run_id=None, worker=None, lease_until=None)


class Mark(NamedTuple):
    """A marker, as it is stored."""

    partition_id: int
    kind: str
    cause: str
    actor: str
    because: str
    at: datetime
    attempts: int
    amount: int | None


class Held(NamedTuple):
    """A source, as it is stored."""

    source: str
    paused_at: datetime | None
    paused_until: datetime | None
    because: str | None
    actor: str | None
    signature: str | None
    probes: int
    updated_at: datetime
    tokens: float | None
    filled_at: datetime | None


ROW = tuple(partition.c[name] for name in Row._fields)
WORK = tuple(work.c[name] for name in Work._fields)
MARK = tuple(marker.c[name] for name in Mark._fields)
HELD = tuple(source.c[name] for name in Held._fields)
_ROWS = Among(partition.c.id, lambda these: select(*ROW).where(these).order_by(partition.c.id))
_LOCKED = Among(partition.c.id, lambda these: select(*ROW).where(these).order_by(partition.c.id).with_for_update())
_WORKS = Among(work.c.partition_id, lambda these: select(*WORK).where(these))
_MARKS = Among(marker.c.partition_id, lambda these: select(*MARK).where(these))
_SOURCES = select(*HELD).where(source.c.source.in_(bindparam("these", expanding=True))).order_by(source.c.source)


def chunks(of: Sequence[T], /, size: int = CHUNK) -> Iterator[Sequence[T]]:
    """A few at a time."""
    for at in range(0, len(of), size):
        yield of[at : at + size]


def locked(connection: Connection, ids: Iterable[int], /) -> dict[int, Row]:
    """These partitions, held until the transaction ends."""
    return _by_id(connection, _LOCKED, ids, Row)


def read(connection: Connection, ids: Iterable[int], /) -> dict[int, Row]:
    """These partitions, as they are now."""
    return _by_id(connection, _ROWS, ids, Row)


def works(connection: Connection, ids: Iterable[int], /) -> dict[int, Work]:
    """Their work; none where nothing is to be done."""
    return _by_id(connection, _WORKS, ids, Work)


def _by_id(connection: Connection, query: Among, ids: Iterable[int], kind: Any) -> dict[int, Any]:
    return {row[0]: kind._make(row) for row in query.rows(connection, sorted(set(ids)))}


def marks(connection: Connection, ids: Iterable[int], /) -> dict[int, dict[str, Mark]]:
    """Their markers, by kind."""
    found: dict[int, dict[str, Mark]] = {}
    for row in _MARKS.rows(connection, sorted(set(ids))):
        found.setdefault(row[0], {})[row[1]] = Mark._make(row)
    return found


def hold_sources(session: Session, names: Iterable[str], now: datetime, /) -> dict[str, Held]:
    """The rows of these sources, held until the transaction ends; made where there is none."""
    wanted = sorted(set(names))
    query = _SOURCES if session.sqlite else _SOURCES.with_for_update()
    found = {row[0]: Held._make(row) for row in session.core.execute(query, {"these": wanted})}
    if missing := [name for name in wanted if name not in found]:
        new: Any = upsert(session, source).on_conflict_do_nothing(index_elements=[source.c.source])
        session.core.execute(new, [{"source": name, "updated_at": now} for name in missing])
        found |= {row[0]: Held._make(row) for row in session.core.execute(query, {"these": missing})}
    return found


def upsert(session: Session, table: Any, /) -> Any:
    """An insert that can say what to do about what is there already."""
    return sqlite.insert(table) if session.sqlite else postgresql.insert(table)


BEGUN = (
    "partition_id", "attempt_no", "run_id", "raw_run_id", "kind", "state", "lane", "sweep_id", "worker", "leased_at",
)  # fmt: skip
"""Of a run that begins."""
ENDED = ("state", "ended_at", "note")
"""Of one that ends."""
SAID = (
    "run_id", "decision", "validator", "version", "checks", "record_count", "reason", "message", "manifest", "at",
)  # fmt: skip
"""Of a verdict."""
_IDLE = Among(work.c.partition_id, lambda these: delete(work).where(these))
_UNMARKED = delete(marker).where(marker.c.partition_id == bindparam("at_id"), marker.c.kind == bindparam("at_kind"))


class Changes:
    """What a transaction does to partitions, gathered and then written in a few statements. For one transaction.

    `was` is what each was when it was read: the rollup follows from the difference.
    """

    def __init__(self, was: dict[int, Row], born: Collection[int] = (), /) -> None:
        """born: those that were made in this transaction, and that no rollup has counted."""
        self._was = was
        self._born = frozenset(born)
        self.rows: dict[int, Row] = {}
        self.work: dict[int, Work] = {}
        self.new_work: dict[int, Work] = {}
        self.idle: set[int] = set()
        self.marked: dict[tuple[int, str], Mark] = {}
        self.unmarked: set[tuple[int, str]] = set()
        self.ranges: Counter[tuple[int, str]] = Counter()
        """Added to the counts of sweeps."""
        self.placed: dict[int, dict[str, Any]] = {}
        """Where the cursors of sweeps are."""

    def row(self, id_: int, /) -> Row:
        """A partition, with what was changed of it already."""
        return self.rows.get(id_, self._was[id_])

    def mark(self, mark: Mark, /) -> None:
        """Set a marker."""
        self.unmarked.discard(mark[:2])
        self.marked[mark[:2]] = mark

    def unmark(self, id_: int, kind: str, /) -> None:
        """Take a marker off."""
        self.marked.pop((id_, kind), None)
        self.unmarked.add((id_, kind))

    def write(
        self, session: Session, /, *, begun: Sequence[dict[str, Any]] = (), ended: Sequence[dict[str, Any]] = (),
        said: Sequence[dict[str, Any]] = (),
    ) -> None:  # fmt: skip
        """Write all of it, in the one order. begun, ended: runs that begin and end with it; said: verdicts."""
        rows = [row._asdict() for _, row in sorted(self.rows.items())]
        updated(session, partition, "id", Row._fields[5:], rows)
        _IDLE.run(session.core, sorted(self.idle))
        busy = [row._asdict() for id_, row in sorted(self.work.items()) if id_ not in self.idle]
        updated(session, work, "partition_id", Work._fields[3:], busy)
        inserted(session, work, Work._fields, [row._asdict() for _, row in sorted(self.new_work.items())])
        inserted(session, run, BEGUN, begun)
        updated(session, run, "run_id", ENDED, sorted(ended, key=lambda row: str(row["run_id"])))
        inserted(session, verdict, SAID, said)
        if self.unmarked:
            session.core.execute(_UNMARKED, [{"at_id": id_, "at_kind": kind} for id_, kind in sorted(self.unmarked)])
        if self.marked:
            session.core.execute(_marking(session), [mark._asdict() for _, mark in sorted(self.marked.items())])
        _counted(session.core, self.ranges, self.placed)
        self._roll(session)

    def _roll(self, session: Session) -> None:
        moved: Counter[tuple[str, str, date, int]] = Counter()
        for id_, row in self.rows.items():
            if id_ not in self._born:
                moved[*row[1:4], self._was[id_].shade] -= 1
            moved[*row[1:4], row.shade] += 1
        roll(session, moved)


def roll(session: Session, moved: Counter[tuple[str, str, date, int]], /) -> None:
    """Add to the rollup."""
    rows = [
        {"source": key[0], "query_name": key[1], "logical_date": key[2], "shade": key[3], "n": n}
        for key, n in sorted(moved.items())
        if n
    ]
    if rows and session.sqlite:
        new = upsert(session, rollup)
        changed = new.on_conflict_do_update(index_elements=list(rollup.primary_key), set_={"n": rollup.c.n + new.excluded.n})
        session.core.execute(changed, rows)
    elif rows:
        added(session, rollup, ("source", "query_name", "logical_date", "shade", "n"), "n", rows)


def _marking(session: Session) -> Any:
    new = upsert(session, marker)
    return new.on_conflict_do_update(
        index_elements=list(marker.primary_key), set_={name: new.excluded[name] for name in Mark._fields[2:]}
    )


def _counted(connection: Connection, changes: Counter[tuple[int, str]], placed: Mapping[int, Mapping[str, Any]]) -> None:
    by_sweep: dict[int, dict[str, Any]] = {sweep_id: dict(values) for sweep_id, values in placed.items()}
    for (sweep_id, name), many in changes.items():
        if sweep_id and many:
            by_sweep.setdefault(sweep_id, {})[name] = range_.c[name] + many
    for sweep_id, values in sorted(by_sweep.items()):
        connection.execute(update(range_).where(range_.c.sweep_id == sweep_id).values(values))
