"""Failure slots: what failed hour by hour, of kinds and of failures that are alike. Read at no cost that grows with how many.

As text, not as an expression: to build and to name one for thirty groups takes longer than the database takes to answer it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, TextClause, text

from .failure_deltas import HOUR, SLOT, WHOLE, Alike


class Counted(NamedTuple):
    """What failed within an hour: the last one, or one of those before it."""

    first: int
    last: int
    """The ten minutes in which it was first and last seen."""
    tries: int
    died: int


def by_kind(connection: Connection, kinds: Sequence[str], now: int, hours: int, /) -> dict[str, list[Counted]]:
    """What failed in each of the last hours, by kind. now: the slot that it is."""
    found = _asked(connection, "by_kind", now, hours, [(kind, WHOLE) for kind in kinds])
    return {kinds[place]: counted for place, counted in found.items()}


def by_group(connection: Connection, now: int, hours: int, wanted: Sequence[Alike], /) -> dict[Alike, list[Counted]]:
    """The same for some that are alike."""
    return {wanted[place]: counted for place, counted in _asked(connection, "by_group", now, hours, wanted).items()}


def lately(connection: Connection, now: int, wanted: Sequence[Alike], /) -> dict[Alike, int]:
    """How many attempts failed in the last hour, of some that are alike."""
    found = by_group(connection, now, 1, wanted)
    return {alike: sum(one.tries for one in counted if one.last > now - HOUR) for alike, counted in found.items()}


def _asked(connection: Connection, what: str, now: int, hours: int, wanted: Sequence[Alike]) -> dict[int, list[Counted]]:
    """By their places among those that are wanted."""
    if not wanted:
        return {}
    given: dict[str, object] = {"now": now, "since": now - HOUR * hours}
    if connection.dialect.name == "sqlite":
        rows = connection.execute(_SQLITE[what], {**given, "wanted": json.dumps(list(wanted))}).all()
    else:
        kinds, signatures = map(list, zip(*wanted, strict=True))
        rows = connection.execute(_POSTGRES[what], {**given, "kinds": kinds, "signatures": signatures}).all()
    found: dict[int, list[Counted]] = {}
    for place, first, last, tries, died in rows:
        found.setdefault(place, []).append(Counted(first, last, tries, died))
    return found


# One by one: of a list of pairs SQLite makes a look at every group there is, and so would Postgres, which joins what it can see
# through (OFFSET 0 it cannot). Sorted by a number: of words it takes twice as long.
_KEPT_SQLITE = """
SELECT look.place, kept.slot, kept.tries, kept.died FROM {look} CROSS JOIN redrive_failure_slot AS kept
WHERE kept.kind = look.kind AND kept.signature = look.signature AND kept.slot >= :since"""
_KEPT_POSTGRES = """
SELECT look.place, kept.slot, kept.tries, kept.died FROM {look} CROSS JOIN LATERAL (
SELECT slot, tries, died FROM redrive_failure_slot AS one
WHERE one.kind = look.kind AND one.signature = look.signature AND one.slot >= :since OFFSET 0) AS kept"""
_LOOK_SQLITE = """(SELECT key AS place, json_extract(value, '$[0]') AS kind, json_extract(value, '$[1]') AS signature
FROM json_each(:wanted)) AS look"""
_LOOK_POSTGRES = """(SELECT n - 1 AS place, kind, signature
FROM unnest(CAST(:kinds AS text[]), CAST(:signatures AS text[])) WITH ORDINALITY AS each(kind, signature, n)) AS look"""
_HOURLY = """SELECT min(place), min(slot), max(slot), CAST(sum(tries) AS bigint), CAST(sum(died) AS bigint)
FROM ({slots}) AS slots GROUP BY place * 1000 + (CAST(:now AS bigint) - slot) / {hour}"""
# What was not summed up yet: nothing on SQLite, of the last seconds on Postgres.
_SLOT = f"CAST(floor(extract(epoch FROM delta.at) / {SLOT}) AS bigint) AS slot, delta.tries, delta.died"
_FRESH = """SELECT look.place, {slot} FROM redrive_failure_delta AS delta JOIN {look} ON delta.kind = look.kind {alike}
WHERE delta.job_id IS NOT NULL"""


def _hourly(*slots: str) -> TextClause:
    return text(_HOURLY.format(slots=" UNION ALL ".join(slots), hour=HOUR))


def _postgres(alike: str) -> TextClause:
    fresh = _FRESH.format(slot=_SLOT, look=_LOOK_POSTGRES, alike=alike)
    return _hourly(_KEPT_POSTGRES.format(look=_LOOK_POSTGRES), fresh)


_SQLITE = dict.fromkeys(("by_kind", "by_group"), _hourly(_KEPT_SQLITE.format(look=_LOOK_SQLITE)))
_POSTGRES = {"by_kind": _postgres(""), "by_group": _postgres("AND delta.signature = look.signature")}
