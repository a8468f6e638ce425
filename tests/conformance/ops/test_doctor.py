"""The doctor finds each planted problem, and none in a healthy ledger."""

from __future__ import annotations

import re
import shlex
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy

from redrive import App
from redrive.core.clock import SYSTEM, SystemClock
from redrive.errors import LedgerError
from redrive.ledger import Ledger, NewJob
from redrive.ledger.db.tables import VERSION_TABLE, audit, dead, job, key, tally
from redrive.ledger.jobs import parking
from redrive.ops import DeadLetterFilter
from redrive.ops.health import doctor
from redrive.ops.health.overview_rules import Finding, Health
from redrive.ops.operator import Operator
from redrive.worker.worker import Worker
from tests.conformance.ledger.world import pass_time
from tests.conformance.ops.world import die
from tests.conformance.worker.world import until


def change(ledger: Ledger, statement: sqlalchemy.Executable) -> None:
    with ledger.begin() as tx:
        tx.execute(statement)


def only(health: Health) -> Finding:
    (found,) = health.findings
    return found


def test_a_ledger_in_use_is_healthy(ledger: Ledger, ann: Operator) -> None:
    ledger.submit_many([NewJob("mail", f"k{each}") for each in range(20)])
    ledger.maintenance.heartbeat("w1")
    leases = ledger.claim({"mail": 10}, worker="w1")
    ledger.settle([lease.done() for lease in leases[:5]])
    ledger.settle(leases[5].again(60, error="once more"))
    letters = die(ledger, "d")
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=tuple(letters))), because="a test order")
    with App(ledger) as app, app.claim("shop:ann:o-1:charge:v1") as claim:
        claim.response = 1
        health = ann.health.check()
    assert (health.findings, health.severity) == ((), None)
    assert health.balance == "21 submitted = 5 done + 11 queued + 4 running + 0 dead + 1 discarded or replayed"


@pytest.mark.req("W-1")
def test_an_unregistered_job_type_is_reported(ledger: Ledger, ann: Operator) -> None:
    """The job is kept and reported: it was renamed, or its worker does not run."""
    ledger.submit_many([NewJob("old.name", "b"), NewJob("old.name", "c")])
    pass_time(ledger, 300)
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail"]})
    found = only(ann.health.check())
    assert (found.name, found.severity, found.count) == ("unregistered", "warning", 2)
    assert found.says == "old.name: no online worker has registered this job type; 2 jobs kept and not run"
    ledger.maintenance.heartbeat("w2", {"kinds": ["old.name"]})
    assert only(ann.health.check()).name == "late"
    ledger.claim({"old.name": 2}, worker="w2")
    assert ann.health.check().findings == ()


def test_expired_leases_are_reported(ledger: Ledger, ann: Operator) -> None:
    ledger.submit_many([NewJob("mail", "a"), NewJob("mail", "b")])
    ledger.claim({"mail": 2}, worker="w1", lease=30)
    pass_time(ledger, 300)
    ledger.maintenance.heartbeat("w2")
    found = only(ann.health.check())
    assert (found.name, found.severity, found.count, found.mend) == ("dangling leases", "critical", 2, "redrive ledger reap")
    assert found.since is not None
    assert 260 < (ledger.now() - found.since).total_seconds() < 280
    assert len(ann.health.reap()) == 2
    assert ann.health.check().findings == ()


def test_idempotency_records_of_a_lost_holder_are_reported(ledger: Ledger, ann: Operator) -> None:
    with App(ledger) as app:
        for each in range(2):
            with app.claim(f"shop:ann:o-{each}:charge:v1") as claim:
                claim.response = each
    change(ledger, sqlalchemy.update(key).values(status="processing", response=None))
    pass_time(ledger, 300)
    found = only(ann.health.check())
    assert (found.name, found.severity, found.count) == ("wedged keys", "warning", 2)
    assert "shop:ann:o-0:charge:v1" in found.says
    assert found.mend == "redrive keys list --abandoned"
    ann.keys.release("shop:ann:o-0:charge:v1", because="crashed")
    found = only(ann.health.check())
    assert found.mend == 'redrive keys release "shop:ann:o-1:charge:v1" --because "..."'
    ann.keys.release("shop:ann:o-1:charge:v1", because="crashed")
    assert ann.health.check().severity is None


@pytest.mark.req("L-8")
@pytest.mark.parametrize(
    "planted",
    [
        sqlalchemy.delete(job).where(job.c.key == "a"),
        sqlalchemy.update(job).where(job.c.key == "a").values(state=2),
        sqlalchemy.insert(tally).values(kind="ghost", submitted=1),
    ],
)
def test_unbalanced_counts_are_reported(ledger: Ledger, ann: Operator, planted: sqlalchemy.Executable) -> None:
    ledger.submit_many([NewJob("mail", "a"), NewJob("mail", "b"), NewJob("other", "c")])
    change(ledger, planted)
    found = only(ann.health.check())
    assert (found.name, found.severity) == ("balance", "critical")
    assert found.mend == 'redrive ledger recount --because "..."'
    assert ann.health.recount(because="rows were removed by hand, INC-9")
    assert ann.health.check().findings == ()
    assert [(one.action, one.because) for one in ann.audit.find()] == [("ledger.recount", "rows were removed by hand, INC-9")]
    assert ann.health.recount(because="again") == {}
    assert len(ann.audit.find()) == 1
    with pytest.raises(ValueError, match="because= must say why"):
        ann.health.recount(because="")


@pytest.mark.req("L-8")
def test_a_dead_job_without_a_dead_letter_is_reported(ledger: Ledger, ann: Operator) -> None:
    die(ledger, "a")
    change(ledger, sqlalchemy.delete(dead))
    found = only(ann.health.check())
    assert (found.name, "1 job is dead, but 0 dead letters are pending" in found.says) == ("balance", True)
    ledger.submit(NewJob("mail", "b"))
    change(ledger, sqlalchemy.update(job).where(job.c.key == "a").values(state=4))


@pytest.mark.req("L-8")
def test_work_in_progress_is_not_an_imbalance(ledger: Ledger, ann: Operator) -> None:
    stop = threading.Event()
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for turn in range(10_000):
                if stop.is_set():
                    return
                ledger.submit_many([NewJob("mail", f"{name}-{turn}-{each}") for each in range(10)])
                leases = ledger.claim({"mail": 10}, worker=name)
                ledger.settle([lease.done() if at % 3 else lease.dead("attempts") for at, lease in enumerate(leases)])
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work, args=(f"w{each}",)) for each in range(3)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(15):
            assert ledger.imbalance() == []
            assert ann.status().kinds is not None
        change(ledger, sqlalchemy.insert(tally).values(kind="ghost", submitted=1))
        assert ann.health.recount(because="while others work") == {"ghost": {"submitted": -1}}
        assert ledger.imbalance() == []
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert failed == []
    assert ledger.imbalance() == []


class Apart(SystemClock):
    """The clock of this machine, off by a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self.wrong = timedelta(seconds=seconds)

    def now(self) -> datetime:  # type: ignore[override]  # not static here
        return SYSTEM.now() + self.wrong


@pytest.mark.parametrize(
    ("seconds", "severity", "says"),
    [
        (-10, "warning", "ahead of this machine"),
        (10, "warning", "behind this machine"),
        (7200, "critical", "120 min behind this machine"),
    ],
)
def test_a_wrong_clock_is_reported(ledger: Ledger, seconds: float, severity: str, says: str) -> None:
    found = only(doctor.diagnose(ledger, clock=Apart(seconds)))
    assert (found.name, found.severity) == ("clock skew", severity)
    assert says in found.says
    assert doctor.diagnose(ledger, clock=Apart(0.5)).findings == ()


def test_queued_jobs_without_a_worker_are_reported(ledger: Ledger, ann: Operator) -> None:
    ledger.submit_many([NewJob("mail", "a"), NewJob("mail", "b"), NewJob("sms", "c"), NewJob("sms", "later", delay=90_000)])
    assert ann.health.check().findings == ()  # not this soon
    pass_time(ledger, 120)
    found = only(ann.health.check())
    assert (found.name, found.severity, found.count) == ("no workers", "critical", 4)
    assert "Workers: none online (none seen so far), but 4 jobs (2 mail, 2 sms) queued" in found.says
    assert found.since is not None
    assert ann.health.check(quiet=600).findings == ()
    ledger.maintenance.heartbeat("w1")
    assert {one.name for one in ann.health.check().findings} == {"late"}
    pass_time(ledger, 120)
    assert re.search(r"last seen 1[2-9]\d s ago", only(ann.health.check()).says), "a slow machine takes its time"
    ledger.maintenance.heartbeat("w1")
    ledger.maintenance.deregister_worker("w1")
    assert only(ann.health.check()).name == "no workers"


def test_growing_dead_letters_are_reported(ledger: Ledger, ann: Operator) -> None:
    for kind in ("a", "b", "c"):
        die(ledger, *(f"{kind}-{each}" for each in range(9)), kind=kind)
    pass_time(ledger, 3 * 3600)
    ledger.maintenance.heartbeat("w1")
    assert only(ann.health.check()).name == "dead letters pending"
    die(ledger, *(f"fast-{each}" for each in range(9)))
    assert only(ann.health.check()).name == "dead letters pending"
    die(ledger, *(f"mail-{each}" for each in range(3)), kind="mail")
    found = only(ann.health.check())
    assert (found.name, found.severity, found.count) == ("dead letters growing", "warning", 12)
    assert "Dead letters: 12 new in the last hour (9 crm.sync, 3 mail; average before: 1.12/h)" in found.says
    assert found.mend == "redrive dead list --status all --since 1h"


def test_doctor_counts_all_dead_letters_beside_a_job_type_with_many_new_ones(ledger: Ledger, ann: Operator) -> None:
    ledger.maintenance.heartbeat("w1")
    die(ledger, *(f"mail-{each}" for each in range(11)), kind="mail")
    die(ledger, *(f"crm-{each}" for each in range(6)))
    texts = {finding.name: finding.says for finding in ann.health.check().findings}
    assert texts["dead letters growing"].startswith("mail: 11 new dead letters")
    assert texts["dead letters pending"] == (
        "Dead letters: 17 waiting for a decision in total, 6 of them of other job types (6 crm.sync)"
    )


@pytest.mark.req("O-5")
def test_a_broken_audit_log_is_reported(ledger: Ledger, ann: Operator) -> None:
    ledger.record(actor="ann", action="x", because="y", what={})
    change(ledger, sqlalchemy.update(audit).values(actor="bob"))
    found = only(ann.health.check())
    assert (found.name, found.severity, found.is_command) == ("audit", "critical", False)
    assert "entry 1 was changed" in found.says


@pytest.mark.parametrize(
    ("revision", "mend"),
    [
        ("0001", "redrive ledger migrate"),
        ("9999", "install the version of Redrive that migrated this ledger, or a newer one"),
        ("abc", "pass the address of another database; these tables belong to another program"),
    ],
)
def test_an_unknown_schema_is_reported(url: str, ledger: Ledger, revision: str, mend: str) -> None:
    before = ledger.audit()
    with ledger.begin() as tx:
        (known,) = tx.execute(sqlalchemy.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars()
        tx.execute(sqlalchemy.text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))
    try:
        found = only(doctor.examine(url))
        assert (found.name, found.severity) == ("schema", "critical")
        assert found.is_command == mend.startswith("redrive")
        if found.is_command:
            mend += f" --ledger {shlex.quote(url)}"
        assert found.mend == mend
        assert "revision" in found.says
        assert "; " not in found.says, "the fix is printed once"
    finally:
        with ledger.begin() as tx:
            tx.execute(sqlalchemy.text(f"UPDATE {VERSION_TABLE} SET version_num = '{known}'"))
    assert ledger.audit() == before
    assert doctor.examine(url).findings == ()


def test_a_missing_ledger_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger at"):
        doctor.examine(f"sqlite:///{tmp_path / 'none.db'}")


@pytest.mark.req("L-7")
def test_a_parked_job_type_is_named_with_its_reason(ledger: Ledger, ann: Operator) -> None:
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail"]})
    ledger.submit_many([NewJob("mail", f"k{each}") for each in range(3)])
    with ledger.connections.write.use() as session:
        parking.park(session, "mail", signature="Timeout", reason="12 jobs failed for one reason: Timeout", seconds=60)
    found = only(ann.health.check())
    assert (found.name, found.severity, found.count) == ("parked", "critical", 3)
    assert "12 jobs failed for one reason: Timeout" in found.says


@pytest.mark.req("O-3")
def test_doctor_counts_dead_letters_that_wait_for_a_decision(ledger: Ledger, ann: Operator) -> None:
    die(ledger, "a", "b", kind="mail")
    pass_time(ledger, 3 * 24 * 3600)
    (found,) = ann.health.check().findings
    assert (found.name, found.severity, found.count) == ("dead letters pending", "warning", 2)
    assert found.says == "Dead letters: 2 waiting for a decision (2 mail)"
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(kind="mail")), because="test orders")
    assert ann.health.check().findings == ()


@pytest.mark.req("O-3")
def test_an_unreadable_source_is_in_doctor_and_overview(ledger: Ledger, ann: Operator) -> None:
    class Unreadable:
        name = "read shop.events"
        every = 0.01

        def do(self, _now: datetime, /) -> None:
            raise ConnectionError("redis is away")

    def names() -> list[str]:
        findings = [*ann.health.check().findings, *ann.overview.summary().findings]
        return [one.says for one in findings if one.name == "source failing"]

    with Worker(ledger, [], background_tasks=[Unreadable()], name="w1", lease=0.4) as worker:
        until(lambda: bool(worker.status.failing) and len(names()) == 2)
        assert all(
            says.startswith("Workers: 1 worker cannot read shop.events (w1") and "redis is away" in says for says in names()
        )
    assert names() == [], "it ended in order"


@pytest.mark.req("O-3")
def test_doctor_reports_every_problem_of_the_overview(ledger: Ledger, ann: Operator) -> None:
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail", "sms", "crm"], "threads": 1})
    ledger.submit_many([NewJob("mail", f"k{each}") for each in range(3)])
    ledger.submit_many([NewJob("crm", "a"), *(NewJob("sms", f"k{each}") for each in range(12))])
    ledger.settle([lease.dead("attempts") for lease in ledger.claim({"sms": 12}, worker="w1")])
    with ledger.connections.write.use() as session:
        parking.park(session, "crm", signature="Timeout", reason="Timeout", seconds=60)
    pass_time(ledger, 120)
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail", "sms", "crm"], "threads": 1})
    seen = [(one.name, one.severity, one.says, one.since) for one in ann.overview.summary().findings]
    assert {name for name, *_ in seen} == {"late", "dead letters growing", "parked"}
    findings = [(one.name, one.severity, one.says, one.since) for one in ann.health.check().findings]
    assert [(name, severity) for name, severity, *_ in findings] == [(name, severity) for name, severity, *_ in seen]


@pytest.mark.req("O-3")
def test_late_jobs_are_explained_by_busy_threads(ledger: Ledger, ann: Operator) -> None:
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail"], "threads": 2})
    ledger.submit_many([NewJob("mail", f"k{each}") for each in range(5)])
    ledger.claim({"mail": 2}, worker="w1", lease=3600)
    pass_time(ledger, 240)
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail"], "threads": 2})
    found = only(ann.health.check())
    assert (found.name, found.count, found.mend) == ("late", 3, "redrive workers list")
    assert re.search(r"; all 2 worker threads are busy, and the longest job has run for 24\d s", found.says)
    ledger.maintenance.heartbeat("w1", {"kinds": ["mail"], "threads": 3})
    found = only(ann.health.check())
    assert (found.mend, "busy" in found.says) == ("redrive work module:app", False)
