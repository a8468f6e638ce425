"""Workers, schedules and the journal, as an operator sees them."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from redrive import App
from redrive.commands.cron import Cron
from redrive.commands.schedule import CommandScheduleTask, next_run
from redrive.ledger import Ledger, NewJob
from redrive.ops import DeadLetterFilter
from redrive.ops.operator import Operator
from redrive.partitions.work.tasks import ScheduleTask
from tests.conformance.ledger.world import pass_time
from tests.conformance.ops.world import SECRET, TIMEOUT, die
from tests.conformance.partitions.world import World


@pytest.mark.req("O-4")
def test_who_is_there_who_went_silent_and_what_they_have(ledger: Ledger, ann: Operator) -> None:
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
def test_a_worker_says_which_version_it_is(url: str) -> None:
    with App(url) as app:

        @app.command("noop")
        def noop() -> None: ...

        with app.worker():
            while not app.ledger.workers():  # it says so first of all
                time.sleep(0.01)
            (one,) = Operator(app, actor="ann").workers.find().workers
        assert one.version is not None
        assert (one.presence, one.kinds) == ("alive", ("noop",))


@pytest.mark.req("O-4")
def test_what_fires_by_itself(url: str) -> None:
    with App(url) as app:

        @app.command("reports.nightly", cron="0 * * * *")
        def nightly() -> None: ...

        @app.command("receipts.send")
        def send(order: str) -> None: ...

        ann = Operator(app, actor="ann")
        send.submit("o-1")
        assert ann.overview.schedules() == []
        ledger, (terms,) = app.ledger, app.commands.scheduled
        now = ledger.now()
        (chore,) = CommandScheduleTask.of(ledger, [terms], app.kinds())
        chore.do(now)
        (one,) = ann.overview.schedules()
        assert (one.kind, one.line, one.next_at) == ("reports.nightly", "0 * * * * UTC", next_run(terms, now).due)
        assert (one.last_at, one.late_since, one.missed) == (None, None, 0)
        pass_time(ledger, 4 * 3600)
        (one,) = ann.overview.schedules()
        assert one.late_since is not None
        assert one.next_at is None
        assert one.missed in (2, 3, 4)
        for lease in ledger.claim({"reports.nightly": 1}, worker="w1"):
            ledger.settle(lease.dead("x", error="KeyError: 'day'"))
        (one,) = ann.overview.schedules()
        assert (one.late_since, one.last_state, one.error) == (None, "dlq", "KeyError: 'day'")


@pytest.mark.req("O-4", "P-10")
def test_schedules_of_datasets_are_listed_with_next_and_last_run(url: str) -> None:
    with App(url, stores={"raw": {"type": "memory"}}) as app:
        told: Any = {"raw": "raw", "customers": ["acme", "zeta"], "checks": []}

        @app.dataset("crm", "orders", cron="0 2 * * *", timezone="Europe/Prague", **told)
        def orders(partition: Any, out: Any) -> None: ...

        @app.dataset("crm", "visits", **told)
        def visits(partition: Any, out: Any) -> None: ...

        ledger, ann = app.ledger, Operator(app, actor="ann")
        bare = Operator(ledger, actor="ann")
        now = ledger.now()
        cron = Cron("0 2 * * *", "Europe/Prague")
        (one,) = ann.overview.schedules()  # known to the app, and seen by no worker so far
        assert (one.kind, one.line, one.of) == ("crm/orders", "0 2 * * * Europe/Prague", "dataset")
        assert (one.next_at, one.last_at, one.late_since, one.missed) == (cron.after(now), None, None, 0)
        assert bare.overview.schedules() == []
        chore = ScheduleTask(ledger, list(app.datasets))
        chore.do(now)
        (one,) = bare.overview.schedules()
        assert (one.source, one.query, one.last_at, one.missed) == ("crm", "orders", None, 0)
        pass_time(ledger, 2 * 86_400)
        (one,) = bare.overview.schedules()
        assert (one.missed in (1, 2, 3), one.late_since is not None) == (True, True)
        chore.do(ledger.now())
        (one,) = bare.overview.schedules()
        assert (one.missed, one.late_since, one.last_state, one.last_job) == (0, None, "running", None)
        assert one.last_at is not None
        assert cron.after(one.last_at) == one.next_at
        world = World(ledger)
        world.reject(*world.claim(), final=True)
        (one,) = bare.overview.schedules()
        assert one.error is not None
        assert one.error.startswith("2 of 2 partitions of ")
        assert world.register.progress(one.last_sweep or 0) is not None


@pytest.mark.req("O-3", "O-4", "J-3")
def test_what_happened_last(ledger: Ledger, ann: Operator) -> None:
    (letter,) = die(ledger, "a", ids={"request_id": "r-1"})
    ledger.submit(NewJob("mail", "b"))
    (lease,) = ledger.claim({"mail": 1}, worker="w2")
    ledger.settle(lease.done())
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=(letter,))), because="it was a test")
    found = ann.overview.journal()
    assert [one.event for one in found] == [
        "dead.discard", "done", "submitted", *sorted(one.event for one in found[3:5]), "submitted",
    ]  # fmt: skip
    assert {one.event for one in found[3:5]} == {"failed", "dead"}
    decided, done, *_ = found
    assert (decided.actor, decided.reason, decided.job_id) == ("ann", "it was a test", None)
    assert (done.kind, done.worker, done.attempt, done.seconds is not None) == ("mail", "w2", 1, True)
    failed = next(one for one in found if one.event == "failed")
    assert (failed.ids, failed.reason, failed.kind) == ({"request_id": "r-1"}, "attempts", "crm.sync")
    assert SECRET not in str(found)
    assert TIMEOUT.startswith("TimeoutError")
    assert [one.event for one in ann.overview.journal(events=["decided"])] == ["dead.discard"]
    assert {one.event for one in ann.overview.journal(events=["dead", "failed"])} == {"dead", "failed"}
    assert {one.kind for one in ann.overview.journal(kind="mail")} == {"mail"}
    assert ann.overview.journal(since=ledger.now() + timedelta(seconds=1)) == []
    assert len(ann.overview.journal(limit=2)) == 2
    with pytest.raises(ValueError, match="did you mean 'failed'"):
        ann.overview.journal(events=["faild"])


@pytest.mark.req("O-3", "J-3")
def test_the_journal_reads_on_and_says_everything_once(ledger: Ledger, ann: Operator) -> None:
    ledger.submit_many([NewJob("mail", str(each)) for each in range(5)])
    tail = ann.overview.tail(limit=3)
    assert [one.event for one in tail.look()] == ["submitted"] * 3
    assert tail.look() == []
    ledger.submit(NewJob("mail", "new"))
    for lease in ledger.claim({"mail": 1}, worker="w1"):
        ledger.settle(lease.again(1, error="e"))
    fresh = tail.look()
    assert {one.event for one in fresh} == {"submitted", "failed"}
    assert [one.at for one in fresh] == sorted(one.at for one in fresh)
    assert tail.look() == []
