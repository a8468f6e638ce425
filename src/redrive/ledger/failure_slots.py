"""Failure slots: what failed hour by hour, of kinds and of failures that are alike. Read at no cost that grows with how many.

As text, not as an expression: to build and to name one for thirty groups takes longer than the database takes to answer it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, TextClause, text

from .failed import HOUR, SLOT, WHOLE, Alike


class Counted(NamedTuple):
    """What failed within an hour: the last one, or one of those before it."""

    first: int
    last: int
    """The ten minutes in which it was first and last seen."""
    tries: int
    died: int


def by_kind(connection: Connection, kinds: Sequence[str], now: int, hours: int, /) -> dict[str, list[Counted]]:
    """What failed in each of the last hours, by kind. now: the slot that it is."""
    found: dict[str, list[Counted]] = {}
    for kind, *counted in _asked(connection, "by_kind", now, hours, [(kind, WHOLE) for kind in kinds]):
        found.setdefault(kind, []).append(Counted._make(counted))
    return found


def by_group(connection: Connection, now: int, hours: int, wanted: Sequence[Alike], /) -> dict[Alike, list[Counted]]:
    """The same for some that are alike."""
    found: dict[Alike, list[Counted]] = {}
    for kind, signature, *counted in _asked(connection, "by_group", now, hours, wanted):
        found.setdefault((kind, signature), []).append(Counted._make(counted))
    return found


def lately(connection: Connection, now: int, /) -> dict[Alike, int]:
    """How many attempts failed in the last hour, of all that are alike."""
    asked = _LATELY_SQLITE if connection.dialect.name == "sqlite" else _LATELY_POSTGRES
    rows = connection.execute(asked, {"since": now - HOUR + 1, "whole": WHOLE}).all()
    return {(kind, signature): tries for kind, signature, tries in rows}


def _asked(connection: Connection, what: str, now: int, hours: int, wanted: Sequence[Alike]) -> Sequence[Any]:
    if not wanted:
        return ()
    given: dict[str, object] = {"now": now, "since": now - HOUR * hours}
    if connection.dialect.name == "sqlite":
        return connection.execute(_SQLITE[what], {**given, "wanted": json.dumps(list(wanted))}).all()
    kinds, signatures = map(list, zip(*wanted, strict=True))
    return connection.execute(_POSTGRES[what], {**given, "kinds": kinds, "signatures": signatures}).all()


# One by one: of a list of pairs SQLite makes a look at every group there is.
_KEPT = """
SELECT kept.kind, kept.signature, kept.slot, kept.tries, kept.died FROM {look} CROSS JOIN redrive_failure_slot AS kept
WHERE kept.kind = look.kind AND kept.signature = look.signature AND kept.slot >= :since"""
_LOOK_SQLITE = """(SELECT json_extract(value, '$[0]') AS kind, json_extract(value, '$[1]') AS signature FROM json_each(:wanted))
AS look"""
_LOOK_POSTGRES = "unnest(CAST(:kinds AS text[]), CAST(:signatures AS text[])) AS look(kind, signature)"
# What was not summed up yet: nothing on SQLite, of the last seconds on Postgres.
_FRESH = """
SELECT delta.kind, delta.signature, CAST(floor(extract(epoch FROM delta.at) / {slot}) AS bigint) AS slot, delta.tries, delta.died
FROM redrive_failure_delta AS delta {alike} WHERE delta.job_id IS NOT NULL"""
_ALIKE = f"JOIN {_LOOK_POSTGRES} ON delta.kind = look.kind AND delta.signature = look.signature"
_HOURLY = """SELECT {by}, min(slot), max(slot), CAST(sum(tries) AS bigint), CAST(sum(died) AS bigint)
FROM ({slots}) AS slots GROUP BY {by}, (CAST(:now AS bigint) - slot) / {hour}"""
_LATELY = """SELECT kind, signature, CAST(sum(tries) AS bigint) FROM ({slots}) AS slots
WHERE slot >= :since AND signature <> :whole GROUP BY kind, signature"""
_SLOTS = "SELECT kind, signature, slot, tries, died FROM redrive_failure_slot"


def _hourly(by: str, *slots: str) -> TextClause:
    return text(_HOURLY.format(by=by, slots=" UNION ALL ".join(slots), hour=HOUR))


_kept = _KEPT.format(look=_LOOK_SQLITE)
_SQLITE = {"by_kind": _hourly("kind", _kept), "by_group": _hourly("kind, signature", _kept)}
_LATELY_SQLITE = text(_LATELY.format(slots=_SLOTS))
_kept = _KEPT.format(look=_LOOK_POSTGRES)
_fresh, _fresh_alike = (_FRESH.format(slot=SLOT, alike=alike) for alike in ("", _ALIKE))
_POSTGRES = {"by_kind": _hourly("kind", _kept, _fresh), "by_group": _hourly("kind, signature", _kept, _fresh_alike)}
_LATELY_POSTGRES = text(_LATELY.format(slots=f"{_SLOTS} UNION ALL {_fresh}"))
