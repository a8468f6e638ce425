"""The overview by tenant."""

from __future__ import annotations

import pytest

from redrive.ledger import Ledger, NewJob
from redrive.ledger.jobs import tenants
from redrive.ops.operator import Operator

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
    monkeypatch.setattr(tenants, "MAX_QUEUED", 3)
    ledger.submit_many([NewJob("mail", f"{n}", tenant="a") for n in range(5)])
    report = ann.jobs.tenants("mail")
    assert report.is_cut
    assert report.tenants[0].queued == 3


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
