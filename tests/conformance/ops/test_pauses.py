"""Pauses by hand through `Operator.pauses`: schedules, sources, names, reasons and the audit log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from redrive import App
from redrive.commands.registry import CommandScheduleTask, next_run
from redrive.errors import NotAllowed, Suspended
from redrive.ledger import Ledger, NewJob
from redrive.ledger.db.partition_tables import source as source_table
from redrive.ledger.jobs import parking
from redrive.ops.metrics import read_gauges
from redrive.ops.operator import Operator
from redrive.partitions.store.rows import POLICY
from redrive.partitions.work.runner import ScheduleTask
from redrive.worker.steps import JobSteps
from tests.conformance.ledger.world import pass_time
from tests.conformance.partitions.world import World
from tests.conformance.worker.world import until


@pytest.fixture
def ann(ledger: Ledger) -> Operator:
    return Operator(ledger, actor="ann")


@pytest.mark.req("Q-4")
def test_a_pause_shows_its_actor_end_and_reason(ledger: Ledger, ann: Operator) -> None:
    ledger.submit(NewJob("crm.sync", "crm:ann:1:sync:v1"))
    until = ledger.now() + timedelta(hours=2)
    line = ann.pauses.pause("job type", "crm.sync", until=until, because="the CRM is migrated")
    assert line.says == f"paused by ann until {until:%Y-%m-%d %H:%M:%S} UTC: the CRM is migrated"
    assert ann.pauses.find() == [line]
    ann.pauses.pause("app", because="INC-42")
    assert [(each.scope, each.name, each.says) for each in ann.pauses.find()] == [
        ("app", "", "paused by ann until resumed: INC-42"),
        ("job type", "crm.sync", line.says),
    ]
    ann.pauses.resume("job type", "crm.sync", because="done")
    ann.pauses.resume("app", because="done")
    assert ann.pauses.find() == []
    entries = [(entry.actor, entry.action, entry.because, entry.what["scope"]) for entry in ledger.audit()]
    assert entries == [
        ("ann", "pause", "the CRM is migrated", "job type"),
        ("ann", "pause", "INC-42", "app"),
        ("ann", "resume", "done", "job type"),
        ("ann", "resume", "done", "app"),
    ]


@pytest.mark.req("Q-4")
def test_a_second_pause_replaces_the_first(ledger: Ledger, ann: Operator) -> None:
    ann.pauses.pause("app", because="first")
    ann.pauses.pause("app", because="second", until=ledger.now() + timedelta(hours=1))
    (line,) = ann.pauses.find()
    assert line.because == "second"
    assert line.until is not None


@pytest.mark.req("Q-4")
def test_unknown_names_are_rejected_with_suggestions_unless_forced(ledger: Ledger, ann: Operator) -> None:
    ledger.submit(NewJob("crm.sync", "crm:ann:1:sync:v1"))
    with pytest.raises(NotAllowed, match=r"job type 'crm.snyc': unknown; did you mean crm.sync\?.*nothing was changed"):
        ann.pauses.pause("job type", "crm.snyc", because="INC-42")
    for scope in ("source", "schedule"):
        with pytest.raises(NotAllowed, match=f"{scope} 'x': unknown; .*nothing was changed"):
            ann.pauses.pause(scope, "x", because="INC-42")
    with pytest.raises(NotAllowed, match="not paused by hand; nothing was changed"):
        ann.pauses.resume("job type", "crm.sync", because="INC-42")
    with pytest.raises(NotAllowed, match="not paused by hand; nothing was changed"):
        ann.pauses.resume("app", because="INC-42")
    with pytest.raises(NotAllowed, match="not paused after an outage"):
        ann.pauses.unpark("crm.sync", because="INC-42")
    assert ledger.audit() == []
    assert ann.pauses.pause("job type", "crm.later", because="INC-42", force=True).name == "crm.later"


@pytest.mark.req("Q-4")
def test_invalid_pauses_are_rejected(ledger: Ledger, ann: Operator) -> None:
    with pytest.raises(ValueError, match="has passed.*nothing was changed"):
        ann.pauses.pause("app", until=ledger.now() - timedelta(seconds=1), because="INC-42")
    with pytest.raises(ValueError, match="because= must say why"):
        ann.pauses.pause("app", because=" ")
    with pytest.raises(ValueError, match="scope 'queue': unknown; use app, job type, source, schedule"):
        ann.pauses.pause("queue", "x", because="INC-42")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="app: has no name"):
        ann.pauses.pause("app", "x", because="INC-42")
    with pytest.raises(ValueError, match="must be printable"):
        ann.pauses.pause("job type", "", because="INC-42")
    assert ann.pauses.find() == []
    assert ledger.audit() == []


@pytest.mark.req("Q-4")
def test_a_parked_job_type_is_resumed_by_its_own_action(ledger: Ledger, ann: Operator) -> None:
    with ledger.connections.write.use() as session:
        parking.park(session, "crm.sync", signature="x", reason="down", seconds=60)
    with pytest.raises(NotAllowed, match="paused after an outage, not by hand; .*redrive resume parked crm.sync"):
        ann.pauses.resume("job type", "crm.sync", because="INC-42")
    ann.pauses.unpark("crm.sync", because="the CRM is back")
    entry = ledger.audit()[-1]
    assert (entry.actor, entry.action, entry.because) == ("ann", "kind.unpark", "the CRM is back")
    with ledger.connections.read.use() as session:
        assert parking.parked_kinds(session) == {}


@pytest.mark.req("Q-4")
def test_a_paused_schedule_of_a_command_holds_its_run_and_makes_up_once(url: str) -> None:
    with App(url) as app:

        @app.command("nightly", cron="0 * * * *")
        def nightly() -> None: ...

        ledger, ann = app.ledger, Operator(app, actor="ann")
        (task,) = CommandScheduleTask.of(ledger, app.commands.scheduled, app.kinds())
        task.do(ledger.now())
        planned = next_run(app.commands.scheduled[0], ledger.now()).due
        ann.pauses.pause("schedule", "nightly", because="holidays")
        (run,) = ledger.jobs("ready")
        assert run.due_at.year == 9999
        pass_time(ledger, 5 * 3600)
        assert ledger.claim({"nightly": 5}, worker="w1") == []
        (later,) = CommandScheduleTask.of(ledger, app.commands.scheduled, app.kinds())
        later.do(ledger.now())
        assert len(ledger.jobs("ready")) == 1, "nothing is stored while it is paused"
        ann.pauses.resume("schedule", "nightly", because="back")
        (run,) = ledger.jobs("ready")
        assert run.due_at == planned, "its own time again"
        pass_time(ledger, 5 * 3600)
        later.do(ledger.now())
        assert len(ledger.claim({"nightly": 5}, worker="w1")) == 1, "one run for all that were missed"


@pytest.mark.req("Q-4")
def test_a_schedule_runs_when_its_pause_expires(url: str) -> None:
    with App(url) as app:

        @app.command("nightly", cron="0 * * * *")
        def nightly() -> None: ...

        ledger, ann = app.ledger, Operator(app, actor="ann")
        (task,) = CommandScheduleTask.of(ledger, app.commands.scheduled, app.kinds())
        task.do(ledger.now())
        end = ledger.now() + timedelta(hours=3)
        ann.pauses.pause("schedule", "nightly", because="holidays", until=end)
        (run,) = ledger.jobs("ready")
        assert run.due_at == end
        ann.pauses.pause("schedule", "nightly", because="longer", until=end + timedelta(hours=1))
        pass_time(ledger, 4.5 * 3600)
        assert len(ledger.claim({"nightly": 5}, worker="w1")) == 1
        assert ann.pauses.find() == []


@pytest.mark.req("Q-4")
def test_a_run_that_sleeps_goes_on_while_its_schedule_is_paused(url: str) -> None:
    with App(url) as app:

        @app.command("nightly", cron="0 * * * *")
        def nightly() -> None: ...

        ledger, ann = app.ledger, Operator(app, actor="ann")
        (task,) = CommandScheduleTask.of(ledger, app.commands.scheduled, app.kinds())
        task.do(ledger.now())
        pass_time(ledger, 3600)
        (lease,) = ledger.claim({"nightly": 1}, worker="w1")
        steps = JobSteps(ledger, lease, ledger.now)
        with pytest.raises(Suspended):
            steps.sleep(timedelta(hours=1), None)
        steps.suspend()
        before = ledger.get(lease.job_id)
        for change in (ann.pauses.pause, ann.pauses.resume):
            change("schedule", "nightly", because="holidays")
            assert ledger.get(lease.job_id) == before, "it has started, and finishes"


@pytest.mark.req("Q-4")
def test_a_schedule_is_fired_now_beside_its_planned_run(url: str) -> None:
    with App(url) as app:

        @app.command("nightly", cron="0 * * * *")
        def nightly() -> None: ...

        ledger, ann = app.ledger, Operator(app, actor="ann")
        (task,) = CommandScheduleTask.of(ledger, app.commands.scheduled, app.kinds())
        task.do(ledger.now())
        first = ann.schedules.fire("nightly", because="INC-42")
        second = Operator(ledger, actor="bob").schedules.fire("nightly", because="without the app")
        ann.pauses.pause("schedule", "nightly", because="holidays")
        third = ann.schedules.fire("nightly", because="also while it is paused")
        leases = ledger.claim({"nightly": 9}, worker="w1")
        assert {lease.job_id for lease in leases} == {first.job_id, second.job_id, third.job_id}
        assert len({lease.key for lease in leases}) == 3
        assert len({lease.payload for lease in leases}) == 1
        ledger.settle([lease.done() for lease in leases])
        (schedule,) = ann.schedules.find()
        assert (schedule.last_state, schedule.last_job) == ("done", third.job_id)
        entries = [(entry.actor, entry.action) for entry in ledger.audit()]
        assert entries == [("ann", "schedule.fire"), ("bob", "schedule.fire"), ("ann", "pause"), ("ann", "schedule.fire")]
        with pytest.raises(NotAllowed, match=r"schedule 'nihgtly': unknown; did you mean nightly\?"):
            ann.schedules.fire("nihgtly", because="INC-42")


@pytest.mark.req("Q-4")
def test_a_paused_schedule_of_a_dataset_enqueues_nothing_and_catches_up(url: str) -> None:
    with App(url, stores={"raw": {"type": "memory"}}) as app:
        told: Any = {"raw": "raw", "customers": ["acme", "zeta"], "checks": []}

        @app.dataset("crm", "orders", cron="0 2 * * *", **told)
        def orders(partition: Any, out: Any) -> None: ...

        ledger, ann = app.ledger, Operator(app, actor="ann")
        task = ScheduleTask(ledger, list(app.datasets))
        task.do(ledger.now())
        ann.pauses.pause("schedule", "crm/orders", because="INC-42")
        pass_time(ledger, 3 * 86_400)
        task.do(ledger.now())
        world = World(ledger)
        assert world.claim() == []
        fired = ann.schedules.fire("crm/orders", because="one day now")
        assert fired.sweep_id is not None
        assert len(world.claim()) == 2
        ann.pauses.resume("schedule", "crm/orders", because="back")
        task.do(ledger.now())
        (schedule,) = ann.schedules.find()
        assert schedule.missed == 0
        assert len(world.claim()) >= 4, "each missed day"
        with pytest.raises(NotAllowed, match="only its app knows its customers"):
            Operator(ledger, actor="bob").schedules.fire("crm/orders", because="INC-42")


@pytest.mark.req("Q-4")
def test_partitions_of_a_paused_source_are_not_claimed(ledger: Ledger, ann: Operator) -> None:
    world = World(ledger)
    world.accept(world.lease_one("first"))
    ann.pauses.pause("source", "crm", because="the CRM is migrated")
    world.backfill(3)
    assert world.claim() == []
    why = world.queries.explain(world.key("c0"), world.limits).why
    assert any("source crm is paused by ann until it is resumed: the CRM is migrated" in each for each in why)
    ann.pauses.resume("source", "crm", because="done")
    leases = world.claim(1)
    ann.pauses.pause("app", because="INC-42")
    assert world.claim() == []
    assert {each.outcome for each in world.accept(*leases)} == {"accepted"}, "running work finishes"
    ann.pauses.resume("app", because="done")
    assert len(world.claim()) == 2


@pytest.mark.req("Q-4")
def test_resuming_a_source_ends_both_pauses_by_hand_and_not_that_of_the_policy(ledger: Ledger, ann: Operator) -> None:
    world = World(ledger)
    world.accept(world.lease_one("first"))
    ann.pauses.pause("source", "crm", because="one")
    ann.sources.pause("crm", because="two")
    ann.pauses.resume("source", "crm", because="done")
    world.backfill(1)
    assert len(world.claim()) == 1
    with pytest.raises(NotAllowed, match="not paused by hand"):
        ann.pauses.resume("source", "crm", because="done")


@pytest.mark.req("Q-4")
def test_a_source_paused_after_an_outage_is_resumed_like_a_job_type(ledger: Ledger, ann: Operator) -> None:
    world = World(ledger)
    world.accept(world.lease_one("first"))
    ann.sources.pause("crm", because="no answer")
    with ledger.connections.write.use() as session, session.transaction("source"):
        session.core.execute(update(source_table).values(actor=POLICY))
    with pytest.raises(NotAllowed, match="source crm: paused after an outage, not by hand; .*redrive resume parked crm"):
        ann.pauses.resume("source", "crm", because="the CRM is back")
    assert ann.pauses.unpark("crm", because="the CRM is back") == ["source"]
    world.backfill(1)
    assert len(world.claim()) == 1
    with pytest.raises(NotAllowed, match=r"job type or source 'cmr': unknown; did you mean crm\?"):
        ann.pauses.unpark("cmr", because="typo")


@pytest.mark.req("Q-4")
def test_a_source_that_a_worker_reads_is_known_before_its_first_partition(url: str) -> None:
    with App(url, stores={"raw": {"type": "memory"}}) as app:

        @app.dataset("crm", "orders", raw="raw", customers=["acme"], checks=[])
        def orders(partition: Any, out: Any) -> None: ...

        ann = Operator(app.ledger, actor="ann")
        with app.worker():
            until(lambda: any(worker.info.get("sources") == ["crm"] for worker in app.ledger.workers()))
            assert ann.pauses.known("source") == ["crm"]
            with pytest.raises(NotAllowed, match=r"source 'cmr': unknown; did you mean crm\?"):
                ann.pauses.pause("source", "cmr", because="INC-42")
            assert ann.pauses.pause("source", "crm", because="INC-42").name == "crm"


@pytest.mark.req("Q-4")
def test_a_pause_by_hand_is_distinct_from_one_after_an_outage_everywhere(ledger: Ledger, ann: Operator) -> None:
    (job,) = ledger.submit_many([NewJob("crm.sync", "crm:ann:1:sync:v1")])
    with ledger.connections.write.use() as session:
        parking.park(session, "crm.sync", signature="x", reason="the CRM is down", seconds=60)
    ann.pauses.pause("job type", "crm.sync", because="the CRM is migrated")
    report = ann.jobs.get(job.id)
    assert report is not None
    by_hand = "crm.sync is paused by ann until resumed: the CRM is migrated"
    assert report.says.startswith(f"queued; {by_hand}; crm.sync is paused after an outage (the CRM is down)")
    summary = ann.overview.summary()
    (line,) = summary.kinds
    assert (line.parked, line.paused) == ("the CRM is down", "paused by ann until resumed: the CRM is migrated")
    findings = {finding.name: finding for finding in summary.findings}
    assert findings["parked"].says.startswith("crm.sync: paused after an outage, 1 job queued")
    assert findings["paused by hand"].says == f"Job type {by_hand.replace(' is', ':', 1)}; 1 job queued"
    assert findings["paused by hand"].mend == 'redrive resume job-type crm.sync --because "..."'
    assert findings["paused by hand"].severity == "warning"
    gauges = {(each.metric.name, each.labels): each.value for each in read_gauges(ledger)}
    assert gauges["redrive_kind_parked", ("crm.sync",)] == gauges["redrive_kind_paused", ("crm.sync",)] == 1
    ann.pauses.resume("job type", "crm.sync", because="done")
    ann.pauses.unpark("crm.sync", because="done")
    ann.pauses.pause("app", because="INC-42")
    assert summary.app_pause is None
    summary = ann.overview.summary()
    assert summary.app_pause is not None
    assert [finding.says for finding in summary.findings] == ["The app: paused by ann until resumed: INC-42; 1 job queued"]
    report = ann.jobs.get(job.id)
    assert report is not None
    assert report.says == "queued; the app is paused by ann until resumed: INC-42"


@pytest.mark.req("Q-4")
def test_jobs_of_a_paused_type_are_not_reported_as_late(ledger: Ledger, ann: Operator) -> None:
    ledger.submit(NewJob("crm.sync", "crm:ann:1:sync:v1"))
    ann.pauses.pause("job type", "crm.sync", because="INC-42")
    pass_time(ledger, 600)
    ledger.maintenance.heartbeat("w1", {"kinds": ["crm.sync"], "threads": 1})
    assert [finding.name for finding in ann.overview.summary().findings] == ["paused by hand"]


@pytest.mark.req("Q-4")
def test_the_change_token_changes_with_a_pause_that_expires(ledger: Ledger, ann: Operator) -> None:
    before = ann.overview.change_token()
    ann.pauses.pause("app", because="INC-42", until=ledger.now() + timedelta(hours=1))
    paused = ann.overview.change_token()
    pass_time(ledger, 7200)
    assert len({before, paused, ann.overview.change_token()}) == 3


@pytest.mark.req("Q-5")
def test_limits_are_shown_beside_the_code_and_reset(ledger: Ledger, ann: Operator) -> None:
    ledger.maintenance.heartbeat("w1", {"kinds": ["crm.sync", "mail"], "limits": {"crm.sync": {"concurrency": 8}}})
    (line,) = ann.limits.find()
    assert (line.kind, line.concurrency, line.code_concurrency, line.is_set) == ("crm.sync", 8, 8, False)
    line = ann.limits.set("crm.sync", concurrency=2, rate=5, because="the CRM is slow")
    assert (line.concurrency, line.rate, line.code_concurrency, line.code_rate) == (2, 5.0, 8, None)
    assert (line.actor, line.because, line.is_set) == ("ann", "the CRM is slow", True)
    ann.limits.set("mail", rate=0.5, because="a new quota")
    assert [(each.kind, each.concurrency, each.rate) for each in ann.limits.find()] == [("crm.sync", 2, 5.0), ("mail", None, 0.5)]
    line = ann.limits.reset("crm.sync", because="done")
    assert (line.concurrency, line.rate, line.is_set) == (8, None, False)
    with pytest.raises(NotAllowed, match="no limit is set at run time; nothing was changed"):
        ann.limits.reset("crm.sync", because="done")
    with pytest.raises(NotAllowed, match=r"job type 'crm.snyc': unknown; did you mean crm.sync\?"):
        ann.limits.set("crm.snyc", rate=1, because="x")
    with pytest.raises(ValueError, match=r"concurrency 0: must be from 1 .*to stop a job type, pause it"):
        ann.limits.set("crm.sync", concurrency=0, because="x")
    assert [entry.action for entry in ledger.audit()] == ["limits.set", "limits.set", "limits.reset"]
