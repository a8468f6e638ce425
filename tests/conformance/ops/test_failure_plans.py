"""Failures by hour are read group by group, for any number of groups."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Connection, event, insert

from redrive.ledger import Ledger
from redrive.ledger.db.tables import failure_slot
from redrive.ledger.stats.failure_groups import SLOT_SECONDS
from redrive.ledger.stats.failures import hours_by_group, hours_by_kind
from tests.conformance.ledger.world import session

GROUPS, SLOTS = 500, 20
NOW = 1_800_000_000 // SLOT_SECONDS


def plans(connection: Connection) -> list[str]:
    """Collect the plan of each statement from now on."""
    found: list[str] = []

    @event.listens_for(connection, "before_cursor_execute")
    def explained(_of: Connection, _cursor: object, statement: str, given: Any, _context: object, _many: bool) -> None:
        if statement.startswith("EXPLAIN"):
            return
        sqlite = connection.dialect.name == "sqlite"
        rows = connection.exec_driver_sql(f"EXPLAIN {'QUERY PLAN ' if sqlite else ''}{statement}", given).all()
        found.append("\n".join(str(row[-1]) for row in rows))

    return found


@pytest.mark.req("O-4")
def test_groups_are_not_queried_unless_requested(ledger: Ledger) -> None:
    kept = [
        {"kind": f"kind-{number % 20}", "signature": f"Error {number}", "slot": NOW - slot, "tries": 1, "died": 0}
        for number in range(GROUPS)
        for slot in range(SLOTS)
    ]
    with session(ledger) as held:
        held.core.execute(insert(failure_slot), kept)
        held.core.execute(sqlalchemy.text("ANALYZE"))
        seen = plans(held.core)
        wanted = [(f"kind-{number % 20}", f"Error {number}") for number in range(30)]
        assert {one[0].tries for one in hours_by_group(held.core, NOW, 1, wanted).values()} == {6}
        hours_by_kind(held.core, ["kind-1", "kind-2"], NOW, 24)
    assert len(seen) == 2
    for plan in seen:
        assert not re.search("Seq Scan on redrive_failure_slot|SCAN kept", plan), plan
        assert re.search(r"redrive_failure_slot_pkey|SEARCH kept USING PRIMARY KEY", plan), plan
        assert "redrive_failure_slot_when" not in plan, plan
