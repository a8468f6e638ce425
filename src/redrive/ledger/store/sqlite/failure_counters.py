"""Failures alike, counted on SQLite: in place."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import bindparam, case, func
from sqlalchemy.dialects.sqlite import insert

from ...db.compiled import Runner, sqlite
from ...db.failure_tables import FAILURES, failure, failure_slot
from ...stats.failure_deltas import WHOLE, Alike, Failed, slot_of_micros

_NAMES = ("kind", "signature", *FAILURES, "first_at", "last_at", "job_id", "error")
_fresh = insert(failure).values({name: bindparam(name) for name in _NAMES})
_new = _fresh.excluded
_failed = _new.job_id.is_not(None)
ADD = sqlite(
    _fresh.on_conflict_do_update(
        index_elements=[failure.c.kind, failure.c.signature],
        set_={
            **{name: failure.c[name] + _new[name] for name in FAILURES},
            "last_at": case((_failed, func.max(failure.c.last_at, _new.last_at)), else_=failure.c.last_at),
            "job_id": func.coalesce(_new.job_id, failure.c.job_id),
            "error": func.coalesce(_new.error, failure.c.error),
        },
    ),
    *_NAMES,
).text
_COUNTED = ("slot", "kind", "signature", "tries", "died")
_slot = insert(failure_slot).values({name: bindparam(name) for name in _COUNTED})
ADD_SLOT = sqlite(
    _slot.on_conflict_do_update(
        index_elements=[failure_slot.c.slot, failure_slot.c.kind, failure_slot.c.signature],
        set_={name: failure_slot.c[name] + _slot.excluded[name] for name in ("tries", "died")},
    ),
    *_COUNTED,
).text


def add(run: Runner, changes: Mapping[Alike, Failed], now: int, /) -> None:
    """Add to what is counted of failures alike."""
    for (kind, signature), one in changes.items():
        run.execute(ADD, (kind, signature, *one[:4], now, now, one.job_id, one.error))
        if one.tries or one.died:
            for name in (signature, WHOLE):
                run.execute(ADD_SLOT, (slot_of_micros(now), kind, name, one.tries, one.died))
