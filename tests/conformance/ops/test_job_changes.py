"""Plans and sweeps over jobs, on both databases."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from redrive.errors import Drift, NotAllowed
from redrive.ledger import Ledger, NewJob
from redrive.ops import JobFilter
from redrive.ops.operator import Operator
from redrive.worker.maintenance import SweepTask

DAY = 86_400.0


def submit(ledger: Ledger, count: int, kind: str = "crm.sync", **fields: float) -> list[int]:
    jobs = [NewJob(kind, f"k{number}", **fields) for number in range(count)]  # type: ignore[arg-type]
    return [each.id for each in ledger.submit_many(jobs)]


@pytest.mark.req("Q-2")
def test_many_jobs_are_cancelled_by_a_filter(ledger: Ledger, ann: Operator) -> None:
    ids = submit(ledger, 250)
    (other,) = submit(ledger, 1, "mail")
    (running,) = ledger.claim({"crm.sync": 1}, worker="w1")
    plan = ann.jobs.cancel(JobFilter(kind="crm.sync"))
    assert (plan.act, plan.count, plan.kinds) == ("cancel", 250, {"crm.sync": 250})
    assert plan.reasons == {"queued": 249, "running": 1}
    assert ledger.counts()["crm.sync"].cancelled == 0, "a plan changes nothing"
    applied = ann.apply(plan, because="INC-42")
    assert sorted(applied.done) == sorted(ids)
    assert applied.skipped == {}
    assert (applied.notes[running.job_id], applied.notes[ids[-1]]) == ("stopping", "cancelled")
    tally = ledger.counts()["crm.sync"]
    assert (tally.cancelled, tally.leased, tally.ready) == (249, 1, 0)
    job = ledger.get(other)
    assert job is not None
    assert job.state == "ready"
    entry = ann.audit.find(action="job.cancel")[0]
    assert (entry.actor, entry.because, entry.what["count"]) == ("ann", "INC-42", 250)
    ledger.settle(running.cancelled())


@pytest.mark.req("Q-2")
def test_an_abandoned_sweep_is_continued_by_a_worker(ledger: Ledger, ann: Operator) -> None:
    submit(ledger, 250)
    sweep = ann.begin(ann.jobs.cancel(JobFilter(kind="crm.sync")), because="INC-42")
    ledger.sweeps.step(sweep.id)
    assert ledger.counts()["crm.sync"].cancelled == 100
    SweepTask(ledger).do(ledger.now())
    report = ann.sweeps.get(sweep.id, limit=3)
    assert report is not None
    assert (report.sweep.state, report.sweep.made) == ("done", 250)
    assert [(each.letter_id, each.outcome, each.note) for each in report.outcomes] == [(None, "cancelled", "cancelled")] * 3


@pytest.mark.req("Q-2")
def test_ended_and_unknown_jobs_are_skipped_with_the_reason(ledger: Ledger, ann: Operator) -> None:
    a, b = submit(ledger, 2)
    (lease,) = ledger.claim({"crm.sync": 1}, worker="w1")
    ledger.settle(lease.done())
    plan = ann.jobs.cancel(JobFilter(ids=(a, b, 99)))
    assert plan.ids == (b,)
    assert plan.skipped == {a: "done", 99: "not found"}
    applied = ann.apply(plan, because="x")
    assert list(applied.done) == [b]
    assert ann.jobs.cancel(JobFilter(ids=(b,))).skipped == {b: "cancelled already"}


@pytest.mark.req("Q-2")
def test_a_selection_of_all_jobs_is_rejected(ann: Operator) -> None:
    with pytest.raises(NotAllowed, match="cancel: select jobs by id, or by a filter .*; nothing was changed"):
        ann.jobs.cancel(JobFilter())


@pytest.mark.req("Q-2")
def test_a_limit_counts_the_rest_and_another_plan_is_drift(ledger: Ledger, ann: Operator) -> None:
    submit(ledger, 12)
    plan = ann.jobs.cancel(JobFilter(kind="crm.sync"), limit=10)
    assert (plan.count, plan.beyond, plan.more, plan.matched) == (10, 2, True, 12)
    with pytest.raises(Drift):
        ann.begin(ann.jobs.cancel(JobFilter(kind="crm.sync")), because="x", seen=plan.digest)


@pytest.mark.req("Q-3")
def test_many_jobs_run_now_and_only_those_that_are_not_due(ledger: Ledger, ann: Operator) -> None:
    later = submit(ledger, 3, delay=DAY)
    submit(ledger, 1, "crm.other")
    plan = ann.jobs.run_now(JobFilter(state="queued"))
    assert plan.ids == tuple(later)
    ann.apply(plan, because="CRM is back")
    assert len(ledger.claim({"crm.sync": 9}, worker="w1")) == 3


@pytest.mark.req("Q-3")
def test_many_jobs_are_rescheduled_and_reprioritised(ledger: Ledger, ann: Operator) -> None:
    ids = submit(ledger, 3)
    due = (ledger.now() + timedelta(hours=2)).replace(microsecond=0)
    applied = ann.apply(ann.jobs.reschedule(JobFilter(kind="crm.sync"), due), because="maintenance")
    assert sorted(applied.done) == ids
    ann.apply(ann.jobs.prioritise(JobFilter(ids=tuple(ids[:1])), -2), because="urgent")
    jobs = [ledger.get(each) for each in ids]
    assert [(each.due_at, each.priority) for each in jobs if each is not None] == [(due, -2), (due, 0), (due, 0)]
    assert ann.audit.find(action="job.reschedule")[0].what["due"] == due.isoformat()
    assert ann.audit.find(action="job.prioritise")[0].what["priority"] == -2


@pytest.mark.req("Q-3")
def test_bad_values_are_rejected(ledger: Ledger, ann: Operator) -> None:
    submit(ledger, 1)
    with pytest.raises(ValueError, match="invalid priority 7: use a whole number from -2"):
        ann.jobs.prioritise(JobFilter(kind="crm.sync"), 7)
    with pytest.raises(ValueError, match="needs a time zone"):
        ann.jobs.reschedule(JobFilter(kind="crm.sync"), datetime(2026, 1, 1))  # noqa: DTZ001  # the mistake
    with pytest.raises(ValueError, match="UTC has passed; use a time to come, or run the jobs now; nothing was changed"):
        ann.jobs.reschedule(JobFilter(kind="crm.sync"), ledger.now() - timedelta(hours=1))


@pytest.mark.req("Q-2")
def test_the_report_of_a_job_shows_the_effect_of_a_cancel(ledger: Ledger, ann: Operator) -> None:
    a, b = submit(ledger, 2)
    (lease,) = ledger.claim({"crm.sync": 1}, worker="w1")
    ann.apply(ann.jobs.cancel(JobFilter(ids=(a, b))), because="x")
    running, cancelled = ann.jobs.get(a), ann.jobs.get(b)
    assert running is not None
    assert cancelled is not None
    assert running.says == "attempt 1 is running on w1; it was cancelled and is asked to stop"
    assert cancelled.says == "cancelled; its job key is free for a new job"
    ledger.settle(lease.done())
    done = ann.jobs.get(a)
    assert done is not None
    assert done.says == "done: it ended successfully after it was asked to stop"
