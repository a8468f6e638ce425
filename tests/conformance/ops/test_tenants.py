"""The overview by tenant."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import event

from redrive.ledger import Ledger, NewJob
from redrive.ledger.jobs import tenants
from redrive.ops.operator import Operator
from tests.conformance.ledger.world import session

pytestmark = pytest.mark.req("Q-6")


def test_tenants_with_the_most_queued_jobs_come_first(ledger: Ledger, ann: Operator) -> None:
    for tenant, count in (("a", 2), ("b", 5), ("c", 1)):
        ledger.submit_many([NewJob("mail", f"{tenant}-{n}", tenant=tenant) for n in range(count)])
    ledger.submit(NewJob("mail", "other"))
    ledger.submit_many([NewJob("mail", f"s-{n}", tenant="s", sequence="one") for n in range(3)])
    ledger.claim({"mail": 4}, worker="w", fair=True)
    report = ann.jobs.tenants("mail")
    assert [(each.tenant, each.queued, each.running) for each in report.tenants] == [
        ("b", 4, 1),
        ("s", 2, 1),
        ("a", 1, 1),
        ("c", 0, 1),
    ]
    assert not report.is_cut
    assert len(ann.jobs.tenants("mail", limit=2).tenants) == 2
    assert ann.jobs.tenants("unknown").tenants == ()


def test_the_overview_reads_a_bounded_number_of_jobs(ledger: Ledger, ann: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "MAX_QUEUED", 5)
    monkeypatch.setattr(tenants, "MAX_SAMPLED", 3)
    ledger.submit_many([NewJob("mail", f"{n}", tenant="z" if n < 2 else "a") for n in range(4)])
    report = ann.jobs.tenants("mail")
    assert (report.is_cut, [(each.tenant, each.queued) for each in report.tenants]) == (False, [("a", 2), ("z", 2)])
    ledger.submit(NewJob("mail", "4", tenant="a"))
    report = ann.jobs.tenants("mail")
    assert (report.is_cut, [(each.tenant, each.queued) for each in report.tenants]) == (True, [("z", 2), ("a", 1)])


def test_queued_jobs_of_tenants_are_counted_in_their_index(ledger: Ledger) -> None:
    ledger.submit_many([NewJob("mail", f"{n}", tenant=f"t{n % 7}") for n in range(500)])
    ran: list[tuple[str, Any]] = []
    with session(ledger) as held:
        held.raw.execute("ANALYZE" if held.sqlite else "VACUUM ANALYZE redrive_job")
        event.listen(held.core, "before_cursor_execute", lambda *call: ran.append((call[2], call[3])))
        tenants.tenant_counts(held.core, "mail", limit=10)
        (statement, parameters), *_ = ran
        explain = "EXPLAIN QUERY PLAN" if held.sqlite else "EXPLAIN"
        plan = "\n".join(str(row[-1]) for row in held.core.exec_driver_sql(f"{explain} {statement}", parameters))
    assert re.search("USING (COVERING )?INDEX redrive_job_tenant|Index Only Scan using redrive_job_tenant", plan), plan


def test_a_backlog_without_tenants_is_not_read(ledger: Ledger, ann: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "MAX_QUEUED", 3)
    ledger.submit_many([NewJob("mail", f"{n}") for n in range(5)])
    report = ann.jobs.tenants("mail")
    assert (report.tenants, report.is_cut) == ((), False)


def test_a_job_shows_its_tenant_and_its_place(ledger: Ledger, ann: Operator) -> None:
    first, second = ledger.submit_many([NewJob("mail", f"{n}", tenant="a", sequence="acc") for n in range(2)])
    report = ann.jobs.get(second.id)
    assert report is not None
    assert (report.job.tenant, report.job.sequence, report.job.state) == ("a", "acc", "queued")
    assert report.says == "queued behind an earlier job of the sequence 'acc'"
    assert ann.status().total("queued", "mail") == 2
    assert first.state == "ready"
