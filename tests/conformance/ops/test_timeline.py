"""The timeline of a job, and signals by an operator, on each database."""

from __future__ import annotations

import pytest

from redrive import App, current
from redrive.errors import NotAllowed, Stop
from redrive.ledger import Lease, Ledger
from redrive.ops.dead_letters.model import DeadLetterFilter
from redrive.ops.operator import Operator
from redrive.worker.worker import Worker
from tests.conformance.worker.world import kind, submit, until, wait_for_jobs


def charge(card: str) -> dict[str, str]:
    return {"receipt": "r-1", "token": "hunter2"}


def work(lease: Lease) -> None:
    current().step("charge", charge, "4111")
    current().progress(0.4, "page 12 of 30")
    current().checkpoint({"page": 12})
    current().sleep(seconds=0.01)
    current().wait_for("approved", timeout=600)
    raise ConnectionError("no answer")


@pytest.mark.req("Q-8", "Q-10")
def test_a_report_shows_steps_sleeps_waits_and_progress(ledger: Ledger, ann: Operator) -> None:
    (job_id,) = submit(ledger, "orders")
    with Worker(ledger, [kind("orders", work)]):
        until(lambda: (job := ledger.get(job_id)) is not None and job.waits_for == "approved")
        until(
            lambda: (report := ann.jobs.get(job_id)) is not None and report.progress is not None and report.progress.part == 0.4
        )
        report = ann.jobs.get(job_id)
        assert report is not None
        assert report.says.startswith("waits for the signal 'approved', at most until ")
        assert (report.job.state, report.waits_for) == ("waiting", "approved")
        assert [(step.act, step.name, step.state) for step in report.steps] == [
            ("step", "charge", "done"), ("sleep", "1", "done"), ("wait", "approved", "waiting"),
        ]  # fmt: skip
        assert report.steps[0].result["receipt"] == "r-1"
        assert report.steps[0].result["token"] != "hunter2", "secrets are masked"
        assert report.progress is not None
        assert (report.progress.percent, report.progress.note, report.progress.checkpoint) == (
            "40 %",
            "page 12 of 30",
            {"page": 12},
        )
        sent = ann.jobs.signal(job_id, "approved", {"by": "bob"}, because="INC-42: by phone")
        assert sent.stored
        (job,) = wait_for_jobs(ledger, job_id)
    report = ann.jobs.get(job_id)
    assert report is not None
    assert (job.state, report.steps[-1].state, report.steps[-1].result) == ("dead", "done", {"by": "bob"})
    entries = [entry for entry in ann.audit.find() if entry.action == "job.signal"]
    assert [(entry.actor, entry.because, entry.what) for entry in entries] == [
        ("ann", "INC-42: by phone", {"job": job_id, "signal": "approved"})
    ]


@pytest.mark.req("Q-8")
def test_signals_to_unknown_and_ended_jobs_are_rejected(ledger: Ledger, ann: Operator) -> None:
    (job_id,) = submit(ledger, "orders")
    with pytest.raises(NotAllowed, match="signal 'approved': job 999 not found; nothing was changed"):
        ann.jobs.signal(999, "approved", because="test")
    with pytest.raises(ValueError, match="because= must say why"):
        ann.jobs.signal(job_id, "approved", because=" ")
    assert ann.jobs.signal(job_id, "approved", because="test").stored
    assert not ann.jobs.signal(job_id, "approved", because="test").stored
    with Worker(ledger, [kind("orders", lambda lease: None)]):
        wait_for_jobs(ledger, job_id)
    with pytest.raises(NotAllowed, match="is done and waits for nothing; nothing was changed"):
        ann.jobs.signal(job_id, "later", because="test")


@pytest.mark.req("Q-8")
@pytest.mark.parametrize("fresh", [False, True])
def test_a_fresh_replay_repeats_steps(url: str, fresh: bool) -> None:
    with App(url) as app:
        charged: list[int] = []

        @app.command("orders.place", key="shop:ann:{order}:place:v1")
        def place(order: int) -> None:
            current().step("charge", charged.append, order)
            if not has_replay:
                raise Stop("no such article")

        has_replay: list[bool] = []
        ann = Operator(app, actor="ann")
        place.submit(1)
        with app.worker():
            until(lambda: app.ledger.counts()["orders.place"].dead == 1)
            has_replay.append(True)
            plan = ann.dead_letters.replay(DeadLetterFilter(kind="orders.place"))
            ann.apply(plan, because="test", fresh=fresh)
            until(lambda: app.ledger.counts()["orders.place"].done == 1)
        assert charged == ([1, 1] if fresh else [1])
