"""Pauses by hand: the app, a job type, a source or a schedule, until a time or until resumed.

They are distinct from job types that are parked after an outage (`parking.py`) and from sources
of datasets that the policy paused. An expired pause has no effect, and workers delete its row.

`WorkControls` is all that decides which work may start: pauses, parked job types and limits at run
time. Workers read it every second in one query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from sqlalchemy import (
    Connection,
    Float,
    Integer,
    Text,
    cast,
    delete,
    literal_column,
    null,
    select,
    union_all,
)

from .. import audit
from ..db.clock import UtcTimestamp, now_on
from ..db.connections import Connections
from ..db.job_tables import limit
from ..db.job_tables import pause as table
from ..db.session import Session, upsert
from ..db.tables import kind
from ..model import NewJob
from ..validation import MAX_KIND_BYTES, check_name, storable_text
from .limits import Limit
from .parking import IS_PARKED, ParkedKind
from .schedule_runs import hold_runs, lock_schedules

Scope: TypeAlias = Literal["app", "job type", "source", "schedule"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
MAX_PAUSES = 10_000
"""Pauses of one ledger. More are rejected."""


class Pause(NamedTuple):
    """A pause by hand. Immutable."""

    scope: Scope
    name: str
    """Empty for the app."""
    paused_at: datetime
    until: datetime | None
    """None: until it is resumed."""
    actor: str
    because: str

    def is_current(self, now: datetime, /) -> bool:
        """Return whether the pause has not expired."""
        return self.until is None or self.until > now


COLUMNS = (
    table.c.scope,
    table.c.name,
    table.c.paused_at,
    table.c.paused_until,
    table.c.actor,
    table.c.because,
)
"""The columns of a `Pause`, in its order."""


class Pauses:
    """The pauses of a ledger at one time. Immutable. Threads may share one."""

    __slots__ = ("_by_name", "app", "job_types")

    def __init__(self, pauses: Iterable[Pause] = ()) -> None:
        self._by_name = {(each.scope, each.name): each for each in pauses}
        self.app = self._by_name.get(("app", ""))
        """The pause of the whole app."""
        self.job_types = frozenset(name for scope, name in self._by_name if scope == "job type")
        """Paused job types, without the app."""

    def get(self, scope: Scope, name: str, /) -> Pause | None:
        """Return the pause of a job type, a source or a schedule, or of the app."""
        return self._by_name.get((scope, name)) or self.app

    def own(self, scope: Scope, name: str, /) -> Pause | None:
        """Return the pause of this alone, not of the app."""
        return self._by_name.get((scope, name))

    def __iter__(self) -> Any:
        return iter(self._by_name.values())

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pauses) and self._by_name == other._by_name

    __hash__ = None  # type: ignore[assignment]


NO_PAUSES = Pauses()


def read_pauses(connection: Connection, now: datetime, /) -> Pauses:
    """Return the pauses that have not expired."""
    return current_pauses(map(Pause._make, connection.execute(select(*COLUMNS))), now)


def current_pauses(pauses: Iterable[Pause], now: datetime, /) -> Pauses:
    """Return the pauses that have not expired, by scope and name."""
    current = [each for each in pauses if each.is_current(now)]
    return Pauses(sorted(current, key=lambda each: (each.scope, each.name)))


def pause(
    session: Session,
    scope: Scope,
    name: str,
    /,
    *,
    until: datetime | None,
    actor: str,
    because: str,
) -> Pause:
    """Pause something by hand, or change its pause.

    Args:
        session: A session without a transaction.
        scope: What is paused.
        name: Its name. Empty for the app.
        until: When the pause ends. None: when it is resumed.
        actor: Who does this, for the audit log.
        because: Why.

    Raises:
        ValueError: The name is not valid, the end has passed, or there are too many pauses.
    """
    with session.transaction("pause"):
        return pause_in(session, scope, name, until=until, actor=actor, because=because)


def pause_in(
    session: Session,
    scope: Scope,
    name: str,
    /,
    *,
    until: datetime | None,
    actor: str,
    because: str,
) -> Pause:
    """Pause something by hand, in the open transaction. See `pause`."""
    audit.check_actor(actor, because)
    check_scope(scope, name)
    if scope == "schedule":
        lock_schedules(session, [name])
    now = now_on(session)
    if until is not None and until <= now:
        raise ValueError(
            f"end of the pause, {until.isoformat()}: has passed; use a later time; "
            "nothing was changed"
        )
    kept = session.core.execute(select(table.c.name).limit(MAX_PAUSES)).all()
    if len(kept) >= MAX_PAUSES:
        raise ValueError(f"{MAX_PAUSES:,} pauses exist; resume some first; nothing was changed")
    new = Pause(scope, name, now, until, storable_text(actor) or "", storable_text(because) or "")
    values = dict(zip((column.name for column in COLUMNS), new, strict=True))
    insert = upsert(session, table).values(values)
    changed = {key: value for key, value in values.items() if key not in ("scope", "name")}
    session.core.execute(
        insert.on_conflict_do_update(index_elements=[table.c.scope, table.c.name], set_=changed)
    )
    if scope == "schedule":
        hold_runs(session, name, until)
    audit.write(
        session,
        actor=actor,
        action="pause",
        because=because,
        what={"scope": scope, "name": name, "until": audit.to_stamp(until)},
    )
    return new


def resume(session: Session, scope: Scope, name: str, /, *, actor: str, because: str) -> bool:
    """End a pause by hand. Returns False if it was not paused: nothing was changed."""
    with session.transaction("resume"):
        return resume_in(session, scope, name, actor=actor, because=because)


def resume_in(session: Session, scope: Scope, name: str, /, *, actor: str, because: str) -> bool:
    """End a pause by hand, in the open transaction. See `resume`."""
    audit.check_actor(actor, because)
    check_scope(scope, name)
    if scope == "schedule":
        lock_schedules(session, [name])
    now = now_on(session)
    ended = delete(table).where(table.c.scope == scope, table.c.name == name)
    row = session.core.execute(ended.returning(table.c.paused_until)).first()
    if scope == "schedule":
        hold_runs(session, name, None, is_released=True)
    if row is None or (row[0] is not None and row[0] <= now):
        return False
    audit.write(
        session,
        actor=actor,
        action="resume",
        because=because,
        what={"scope": scope, "name": name},
    )
    return True


def delete_expired(session: Session, /) -> int:
    """Delete the rows of expired pauses. Workers do this when they see one."""
    now = now_on(session)
    is_expired = (table.c.paused_until.is_not(None), table.c.paused_until <= now)
    return session.core.execute(delete(table).where(*is_expired)).rowcount


def check_scope(scope: object, name: object, /) -> None:
    """Raise ValueError if the scope or the name is not valid."""
    if scope not in SCOPES:
        raise ValueError(f"scope {scope!r}: unknown; use {', '.join(SCOPES)}")
    if scope == "app":
        if name != "":
            raise ValueError(f"app: has no name, but {name!r} was passed; leave it empty")
        return
    check_name(str(scope), name, MAX_KIND_BYTES)


def submit_runs(connections: Connections, runs: Sequence[NewJob], /) -> list[str]:
    """Submit the next runs of schedules that are not paused by hand.

    Args:
        connections: The connections of the ledger.
        runs: Jobs of different job types.

    Returns:
        The job types whose runs are stored. The others are paused.
    """
    with connections.read.use() as session:  # a paused schedule costs no write
        paused = read_pauses(session.core, now_on(session))
    runs = [run for run in runs if paused.own("schedule", run.kind) is None]
    if not runs:
        return []
    with connections.write.use() as session, session.transaction("schedule"):
        lock_schedules(session, [run.kind for run in runs])
        paused = read_pauses(session.core, now_on(session))
        allowed = [run for run in runs if paused.own("schedule", run.kind) is None]
        if allowed:
            connections.store.submit_in(session.run, sorted(allowed, key=lambda run: run[:2]))
    return [run.kind for run in allowed]


# --- Everything that workers read every second


class WorkControls(NamedTuple):
    """What decides which work may start. Immutable."""

    parked: dict[str, ParkedKind]
    pauses: Pauses
    limits: dict[str, Limit]
    """Limits at run time by job type. A value that is None is as in the code."""
    has_expired: bool = False
    """Whether the row of a pause has expired."""


_no_text, _no_time = cast(null(), Text), cast(null(), UtcTimestamp)
_no_number, _no_rate = cast(null(), Integer), cast(null(), Float(53))
_PARKED, _PAUSE, _LIMIT = "parked", "pause", "limit"
_QUERY = union_all(
    select(
        *(literal_column(f"'{_PARKED}'", Text).label("part"), kind.c.kind.label("name")),
        *(kind.c.signature.label("text"), kind.c.reason.label("because")),
        *(kind.c.parked_at.label("since"), kind.c.parked_until.label("until")),
        *(cast(kind.c.probes, Integer).label("number"), _no_rate.label("rate"), _no_text),
    ).where(IS_PARKED),
    select(
        *(literal_column(f"'{_PAUSE}'", Text), table.c.name, table.c.actor, table.c.because),
        *(table.c.paused_at, table.c.paused_until, _no_number, _no_rate, table.c.scope),
    ),
    select(
        *(literal_column(f"'{_LIMIT}'", Text), limit.c.kind, _no_text, _no_text),
        *(_no_time, _no_time, limit.c.concurrency, limit.c.rate, _no_text),
    ),
)


def read_controls(session: Session, now: datetime, /) -> WorkControls:
    """Return what decides which work may start, at this time of the ledger's clock."""
    parked: dict[str, ParkedKind] = {}
    pauses: list[Pause] = []
    limits: dict[str, Limit] = {}
    has_expired = False
    for part, name, text, because, since, until, number, rate, scope in session.core.execute(
        _QUERY
    ):
        if part == _PARKED:
            probe_at = until or since
            parked[name] = ParkedKind(name, text or "", because or "", since, probe_at, number)
        elif part == _LIMIT:
            limits[name] = Limit(number, rate)
        else:
            each = Pause(scope, name, since, until, text, because)
            if each.is_current(now):
                pauses.append(each)
            else:
                has_expired = True
    return WorkControls(parked, Pauses(pauses), limits, has_expired)
