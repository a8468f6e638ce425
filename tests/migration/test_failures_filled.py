"""Failures from before they were counted: the migration fills them in from the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.ledger import NewJob, open_ledger
from redrive.ledger.db import schema
from redrive.ops.operator import Operator


@pytest.mark.req("L-1", "L-8")
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_failure_groups_are_filled_from_existing_rows(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url: str = request.getfixturevalue("postgres_db") if database == "postgres" else f"sqlite:///{tmp_path / 'ledger.db'}"
    with open_ledger(url, migrate=True) as ledger:
        ledger.submit_many([NewJob("mail", str(each)) for each in range(8)])
        leases = ledger.claim({"mail": 8}, worker="w")
        ledger.settle([lease.dead("x", error=f"E: {lease.key}\nat mail.py", signature="E: #") for lease in leases[:4]])
        ledger.settle([leases[4].blocked("y"), leases[5].dead("x", error="F", signature="F")])
        ledger.discard([1], actor="ann", because="old")
        ann = Operator(ledger, actor="ann")
        before = {one.signature: (one.pending, one.blocked, one.died, one.trend) for one in ann.overview.failures()}
        with ledger.connections.write.use() as session:
            schema.migrate(session, "0007", shown="")
            schema.migrate(session, shown="")
        after = {one.signature: (one.pending, one.blocked, one.died, one.trend) for one in ann.overview.failures()}
        assert before == after
        assert {name: found[:3] for name, found in after.items()} == {"E: #": (3, 0, 4), "F": (1, 0, 1), "": (1, 1, 1)}
        assert ledger.imbalance() == []
