"""Workers as an operator sees them: online, silent and ended, with their jobs."""

from __future__ import annotations

import time

import pytest

from redrive import App
from redrive.ledger import Ledger, NewJob
from redrive.ops.operator import Operator
from tests.conformance.ledger.world import pass_time


@pytest.mark.req("O-4")
def test_workers_are_listed_with_their_presence_and_jobs(ledger: Ledger, ann: Operator) -> None:
    ledger.maintenance.heartbeat("silent", {"kinds": ["mail"]})
    pass_time(ledger, 120)
    ledger.maintenance.heartbeat("ended")
    ledger.maintenance.deregister_worker("ended")
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail"], "threads": 4, "state": "working", "version": "1.2"})
    ledger.submit_many([NewJob("mail", each) for each in "ab"])
    begun, taken = (*ledger.claim({"mail": 1}, worker="w1"), *ledger.claim({"mail": 1}, worker="w1", start=False))
    found = ann.workers.find()
    assert [(one.name, one.presence) for one in found.workers] == [("w1", "alive"), ("silent", "silent"), ("ended", "ended")]
    first = found.workers[0]
    assert (found.alive, first.version, first.threads, first.state, first.kinds) == (1, "1.2", 4, "working", ("mail",))
    hands = {job.id: job for job in first.jobs}
    assert set(hands) == {begun.job_id, taken.job_id}
    assert (hands[begun.job_id].attempt, hands[taken.job_id].started_at) == (1, None)
    assert [one.presence for one in ann.workers.find(quiet=1000).workers] == ["alive", "alive", "ended"]


@pytest.mark.req("O-4")
def test_a_worker_reports_its_version(url: str) -> None:
    with App(url) as app:

        @app.command("noop")
        def noop() -> None: ...

        with app.worker():
            while not app.ledger.workers():  # it is reported first
                time.sleep(0.01)
            (one,) = Operator(app, actor="ann").workers.find().workers
        assert one.version is not None
        assert (one.presence, one.kinds) == ("alive", ("noop",))
