"""`redrive audit`: list and verify."""

from __future__ import annotations

from redrive.ledger import Ledger
from tests.unit.cli.command import call


def test_audit_list_reports_that_automatic_entries_are_hidden(ledger: Ledger) -> None:
    ledger.record(actor="ann", action="dead.replay", because="one", what={})
    assert "hidden" not in call("audit", "list")[1]
    ledger.record(actor="redrive", action="kind.park", because="outage", what={"kind": "mail", "signature": "TimeoutError"})
    ledger.record(actor="ann", action="dead.replay", because="two", what={})
    _, printed = call("audit", "list")
    assert "Automatic entries are hidden; `redrive audit list --all` includes them." in printed
    assert "hidden" not in call("audit", "list", "--limit", "1")[1]  # the newest entry is shown
    _, printed = call("audit", "list", "--all")
    assert ("hidden" in printed, "kind.park mail (TimeoutError)" in printed) == (False, True)


def test_audit_list_counts_one_partition_and_several(ledger: Ledger) -> None:
    ledger.record(actor="ann", action="partition.retry", because="x", what={"sweep": 1, "count": 1})
    ledger.record(actor="ann", action="partition.retry", because="x", what={"sweep": 2, "count": 1200})
    printed = call("audit", "list", width=160)[1]
    assert ("sweep 1, 1 partition " in printed, "sweep 2, 1,200 partitions" in printed) == (True, True)


def test_audit_list_names_few_partitions_of_a_long_list(ledger: Ledger) -> None:
    partitions = [f"crm/globex/orders/2026-11-{day:02}" for day in range(1, 12)]
    what = {"count": 1200, "partitions": partitions}
    ledger.record(actor="ann", action="partition.mark_terminal", because="left", what=what)
    ledger.record(actor="ann", action="dead.discard", because="old", what={"letters": [1, 2, 3, 4]})
    ledger.record(actor="ann", action="other", because="x", what={"selection": {"customer": "globex" * 50}})
    printed = call("audit", "list", width=300)[1]
    assert "crm/globex/orders/2026-11-01 and 1,199 more" in printed
    assert "dead.discard 1, 2, 3 and 1 more" in printed
    assert max(map(len, printed.splitlines())) < 200
