"""Work controls: all that decides which work may start, read by workers every second in one query.

These are job types that are parked after an outage, pauses by hand, and limits at run time.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Float, Integer, Text, cast, literal_column, null, select, union_all

from ..db.clock import UtcTimestamp
from ..db.job_tables import limit, pause
from ..db.session import Session
from ..db.tables import kind
from .limits import Limit
from .parking import IS_PARKED, ParkedKind
from .pauses import Pause, Pauses


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
        *(literal_column(f"'{_PAUSE}'", Text), pause.c.name, pause.c.actor, pause.c.because),
        *(pause.c.paused_at, pause.c.paused_until, _no_number, _no_rate, pause.c.scope),
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
