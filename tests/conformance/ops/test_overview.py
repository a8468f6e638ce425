"""The overview of a ledger."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest
import sqlalchemy

from redrive import App, Event
from redrive.ledger import Ledger, NewJob
from redrive.ledger.queries.overview import MAX_COUNTED_RETRIES
from redrive.ops import DeadLetterFilter
from redrive.ops.operator import Operator
from tests.conformance.ledger.world import pass_time
from tests.conformance.ops.world import die
from tests.conformance.partitions.world import World


@pytest.mark.req("O-4")
def test_the_overview_lists_every_job_type(ledger: Ledger, ann: Operator) -> None:
    ledger.submit_many([NewJob("mail", f"{each}", priority=(-2, 0, 2)[each % 3]) for each in range(10)])
    pass_time(ledger, 100)
    ledger.submit(NewJob("sms", "later", delay=600))
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail"]})
    leases = ledger.claim({"mail": 6}, worker="w1")
    ledger.settle([leases[0].done(), leases[1].again(60, error="e"), leases[2].dead("x", signature="s"), leases[3].blocked("y")])
    found = ann.overview.summary()
    mail, sms = sorted(found.kinds, key=lambda one: one.name)
    assert (mail.waiting, mail.running, mail.retry_wait, mail.retry_more, mail.dead, mail.blocked, mail.done) == (
        5,
        2,
        1,
        False,
        2,
        1,
        1,
    )
    assert mail.due_since is not None
    assert timedelta(seconds=95) < found.now - mail.due_since < timedelta(seconds=130)
    assert (mail.failed.hour, mail.died.hour, mail.workers, mail.submitted) == (1, 2, 1, 10)
    assert (sms.due_since, sms.waiting, sms.workers) == (None, 1, 0)
    assert sms.next_due is not None
    assert sms.next_due > found.now
    assert found.sentence == "11 submitted = 1 done + 6 queued + 2 running + 2 dead + 0 discarded or replayed"
    status = ann.status()
    assert found.sentence == status.sentence


@pytest.mark.req("O-4")
def test_a_healthy_ledger_differs_from_one_without_workers(ledger: Ledger, ann: Operator) -> None:
    assert (ann.overview.summary().says, ann.overview.summary().severity, ann.overview.summary().kinds) == (
        "No worker is online (none seen so far)",
        None,
        (),
    )
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail"]})
    assert (ann.overview.summary().says, ann.overview.summary().alive) == (
        "No problems found. 1 worker online; nothing running",
        1,
    )
    pass_time(ledger, 95)
    found = ann.overview.summary()
    assert (found.alive, found.severity, found.findings) == (0, None, ())
    assert found.says.startswith("No worker is online (last seen 9")
    ledger.submit(NewJob("mail", "a"))
    pass_time(ledger, 100)
    found = ann.overview.summary()
    assert [(one.name, one.severity) for one in found.findings] == [("no workers", "critical")]
    assert found.severity == "critical"
    ledger.maintenance.heartbeat("w2", {"kinds": ["mail"]})
    assert [one.name for one in ann.overview.summary().findings] == ["late"]


def test_the_overview_names_dead_letters_that_are_not_a_new_problem(ledger: Ledger, ann: Operator) -> None:
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail"]})
    ledger.submit(NewJob("mail", "a"))
    ledger.settle(ledger.claim({"mail": 1}, worker="w1")[0].dead("attempts"))
    decision = "No new problems; 1 dead letter waiting for a decision. 1 worker online; nothing running"
    assert ann.overview.summary().says == decision


@pytest.mark.req("O-4")
def test_the_overview_lists_problems_first(ledger: Ledger, ann: Operator) -> None:
    ledger.maintenance.heartbeat("w1", {"kinds": ["a", "b", "z"]})
    ledger.submit(NewJob("a", "1"))
    die(ledger, "1", kind="b")
    die(ledger, *map(str, range(20)), kind="z")
    found = ann.overview.summary()
    assert [kind.name for kind in found.kinds] == ["z", "b", "a"]
    ((one),) = found.findings
    assert (one.name, one.kind, one.count, one.severity) == ("dead letters growing", "z", 20, "warning")


@pytest.mark.req("O-4")
def test_the_overview_shows_parked_job_types_and_expired_leases(ledger: Ledger, ann: Operator) -> None:
    from redrive.ledger.jobs import parking

    ledger.submit(NewJob("mail", "a"))
    ledger.claim({"mail": 1}, worker="gone", lease=5)
    with ledger.connections.write.use() as session:
        parking.park(session, "sms", signature="s", reason="503 of the gateway", seconds=60)
    ledger.submit(NewJob("sms", "b"))
    pass_time(ledger, 120)
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail", "sms"]})
    found = ann.overview.summary()
    assert {(one.name, one.kind, one.severity) for one in found.findings} == {
        ("dangling leases", None, "critical"), ("parked", "sms", "critical"),
    }  # fmt: skip
    sms = next(kind for kind in found.kinds if kind.name == "sms")
    assert sms.parked == "503 of the gateway"
    assert sms.probe_at is not None
    (parked,) = [finding for finding in found.findings if finding.name == "parked"]
    assert parked.says.endswith("the first success resumes it; the next probe is due")
    job = ledger.find("sms", "b")
    assert job is not None
    report = ann.jobs.get(job.id)
    assert report is not None
    assert report.says == "queued; sms is paused after an outage (503 of the gateway); the next probe is due"


def test_a_job_whose_failure_did_not_count_is_queued_for_its_next_attempt(ledger: Ledger, ann: Operator) -> None:
    ledger.submit(NewJob("mail", "a"))
    (lease,) = ledger.claim({"mail": 1}, worker="w1")
    ledger.settle(lease.again(600, error="503", reason="parked", free=True))
    report = ann.jobs.get(lease.job_id)
    assert report is not None
    assert (report.job.state, report.job.attempts, report.says) == ("retry_wait", 0, "queued for its next attempt")


@pytest.mark.req("O-4")
def test_scheduled_retries_are_counted_up_to_a_limit(ledger: Ledger, ann: Operator) -> None:
    many = MAX_COUNTED_RETRIES + 5
    ledger.submit_many([NewJob("mail", str(each)) for each in range(many)])
    ledger.settle([lease.again(600, error="e") for lease in ledger.claim({"mail": many}, worker="w1")])
    (mail,) = ann.overview.summary().kinds
    assert (mail.waiting, mail.retry_wait, mail.retry_more) == (many, MAX_COUNTED_RETRIES, True)


@pytest.mark.req("O-4")
def test_the_overview_shows_sources_and_their_lag(url: str) -> None:
    with App(url) as app:

        @app.on("signed.up", name="greet")
        def greet(event: Event[str]) -> None: ...

        ann = Operator(app, actor="ann")
        assert ann.overview.summary().sources == ()
        then = app.ledger.now() - timedelta(seconds=30)
        app.receive(Event("signed.up", "u1", id="1", source="accounts", at=then))
        app.receive(Event("signed.up", "u2", id="2", source="other"))
        (accounts, other) = ann.overview.summary().sources
        assert (accounts.name, other.name) == ("accounts", "other")
        assert accounts.lag is not None
        assert 29 < accounts.lag < 60


@pytest.mark.req("O-4")
def test_the_number_of_queries_does_not_depend_on_the_amount_of_data(ledger: Ledger, ann: Operator) -> None:
    """The number does not depend on the amount of data."""
    asked = count()

    def heard(*_facts: object) -> None:
        next(asked)

    die(ledger, *map(str, range(30)))
    for kind in "abcdefgh":
        ledger.submit(NewJob(kind, "1"))
    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", heard)
    try:
        ann.overview.summary()
        ann.overview.failures()
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", heard)
    assert 5 <= next(asked) <= 19


def test_the_change_token_changes_with_the_ledger(ledger: Ledger, ann: Operator) -> None:
    seen = [ann.overview.change_token()]
    assert ann.overview.change_token() == seen[0]
    (letter,) = die(ledger, "a")
    seen.append(ann.overview.change_token())
    ann.begin(ann.dead_letters.replay(DeadLetterFilter(ids=(letter,))), because="x")
    seen.append(ann.overview.change_token())
    ledger.maintenance.heartbeat("w1", {})
    seen.append(ann.overview.change_token())
    assert len(set(seen)) == 4


@pytest.mark.req("Q-12")
def test_the_overview_counts_partitions_as_work(ledger: Ledger, ann: Operator) -> None:
    world = World(ledger)
    world.backfill(3, 4)
    leases = world.claim(5)
    report = ann.overview.summary()
    (line,) = report.datasets
    assert (line.running, report.extracting) == (5, 5)
    assert line.queued == report.queued_partitions
    world.reject(*leases[:2])
    (line,) = ann.overview.summary().datasets
    assert (line.queued >= 2, line.running) == (True, 3)


def test_the_overview_runs_few_queries(ledger: Ledger, ann: Operator) -> None:
    """The page of the console adds one, and may run ten."""
    ledger.submit(NewJob("mail", "a"))
    statements: list[str] = []

    def hear(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        statements.append(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", hear)
    try:
        ann.overview.summary()
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", hear)
    assert len(statements) <= 9, statements
