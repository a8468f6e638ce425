"""Schedules: what fires by itself, when next, how the last time went, and what was missed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ..ledger.state import READY, shown

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..ledger.look import Firing

LOOKED_AT = 10
"""Firings of each, the newest."""
MOST_MISSED = 100
"""Moments that are counted."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Something that fires by itself, as its jobs in the ledger say."""

    kind: str
    line: str | None
    """The five fields of cron, and the time zone."""
    next_at: datetime | None
    """When it fires next; None: nobody has written that down, since no worker that has it is there."""
    late_since: datetime | None
    """It should have begun then, and waits; None: it is not late."""
    last_at: datetime | None
    """The moment of the last firing that came."""
    last_state: str | None
    """What became of that, as people call it."""
    last_job: int | None
    last_ended: datetime | None
    error: str | None
    missed: int
    """Moments since the last one for which nobody was there; they count once, when somebody is."""


def schedules(ledger: Ledger, /) -> list[Schedule]:
    """By name. Known by their firings, which are jobs: an app need not be at hand."""
    from ..ledger import counts, look  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    now = ledger.now()
    with ledger.reading() as connection:
        found = look.firings(connection, sorted(counts.counts(connection)), LOOKED_AT)
    return [_schedule(kind, firings, now) for kind, firings in sorted(found.items())]


def _schedule(kind: str, firings: list[Firing], now: datetime) -> Schedule:
    newest = firings[0]
    line = _line(newest)
    ahead = [one for one in firings if one.due_at > now and one.state == READY]
    waits = [one for one in firings if one.due_at <= now and one.state == READY]
    come = [one for one in firings if one.due_at <= now]
    last = come[0] if come else None
    state = None if last is None else shown(last.state, started=last.started_at is not None)
    return Schedule(
        kind=kind, line=line, next_at=ahead[-1].due_at if ahead else None,
        late_since=waits[-1].due_at if waits else None, last_at=None if last is None else last.due_at, last_state=state,
        last_job=None if last is None else last.id, last_ended=None if last is None else last.ended_at,
        error=None if last is None else last.error, missed=_missed(line, newest.due_at, now),
    )  # fmt: skip


def _line(firing: Firing) -> str | None:
    from ..commands.terms import FIRING  # noqa: PLC0415  # brings SQLAlchemy

    found = json.loads(firing.headers).get(FIRING) if firing.headers else None
    return found if isinstance(found, str) else None


def _missed(line: str | None, written: datetime, now: datetime) -> int:
    """Moments after the last one that was written down, up to now."""
    from ..commands.cron import Cron  # noqa: PLC0415  # likewise

    if line is None or written > now:
        return 0
    fields, _, zone = line.rpartition(" ")
    try:
        cron = Cron(fields, zone)
    except (ValueError, ModuleNotFoundError):
        return 0
    missed, moment = 0, written
    while missed < MOST_MISSED and (moment := cron.after(moment)) <= now:
        missed += 1
    return missed
