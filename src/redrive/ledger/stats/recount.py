"""Recount: the counts set right by the rows, where somebody changed or removed rows by hand."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, func, select

from .. import audit
from ..db.clock import now_on
from ..db.session import NO_LIMIT, Session
from ..db.tables import job
from ..record import Tally
from ..state import PRUNED
from . import failures
from .counters import add, counts

STORED = ("ready", "leased", "done", "dead", "dropped")
"""Buckets by the stored state of their rows."""


def recount(session: Session, /, *, actor: str, because: str) -> dict[str, dict[str, int]]:
    """Add to the counts of each kind what they lack; what was added. Nobody who works is held up: each of them changes rows
    and counts by as much, so that the difference stays what it is."""
    audit.said(actor, because)
    if session.sqlite:
        with session.transaction("fold") as connection:
            return _set_right(session, connection, actor, because)
    # All rows of one moment; and the audit's turn is taken before that moment, or its last entry could be another by then.
    try:
        session.raw.execute("BEGIN")
        session.allow(NO_LIMIT)
        session.raw.execute("SELECT pg_advisory_lock(%s)", (audit.LOCK,))  # of the session: kept after this transaction
        session.raw.execute("COMMIT")
        with session.transaction("fold", bound=NO_LIMIT) as connection:
            session.raw.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            return _set_right(session, connection, actor, because)
    finally:
        session.expect_answer()
        if not session.raw.closed:
            session.undo()
            session.raw.execute("SELECT pg_advisory_unlock(%s)", (audit.LOCK,))


def _set_right(session: Session, connection: Connection, actor: str, because: str) -> dict[str, dict[str, int]]:
    counted = counts(connection)
    rows: dict[str, dict[int, int]] = {}
    for kind, state, many in connection.execute(select(job.c.kind, job.c.state, func.count()).group_by(job.c.kind, job.c.state)):
        rows.setdefault(kind, {})[state] = many
    changes = {kind: _lacks(counted.get(kind, Tally()), rows.get(kind, {})) for kind in sorted(counted.keys() | rows.keys())}
    changes = {kind: change for kind, change in changes.items() if change}
    grouped = failures.lacking(connection)
    if grouped:
        failures.add(session, grouped, now_on(session))
    for (kind, _signature), change in grouped.items():
        of_kind = changes.setdefault(kind, {})
        of_kind["pending"] = of_kind.get("pending", 0) + change.pending
    if changes:
        add(session, {kind: _buckets(change) for kind, change in changes.items()})
        audit.write(session, actor=actor, action="ledger.recount", because=because, what={"added": changes})
    return changes


def _buckets(change: Mapping[str, int]) -> dict[str, int]:
    return {bucket: many for bucket, many in change.items() if bucket != "pending"}


def _lacks(counted: Tally, rows: Mapping[int, int]) -> dict[str, int]:
    right = {bucket: rows.get(state, 0) for state, bucket in enumerate(STORED)}
    right["pruned"] = max(counted.pruned, rows.get(PRUNED, 0))  # a pruned job leaves no row once its key has expired
    right["submitted"] = sum(right.values())
    lacking = {bucket: many - getattr(counted, bucket) for bucket, many in right.items()}
    return {bucket: many for bucket, many in lacking.items() if many}
