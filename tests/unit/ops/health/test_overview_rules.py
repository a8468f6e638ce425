"""Problems that follow from an overview."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from redrive.ledger.queries.overview import CountSince, HaltedSweep
from redrive.ops.health.overview_rules import OverviewFacts, list_findings
from redrive.ops.overview.job_types import KindLine
from redrive.ops.overview.trend import NONE, Trend
from redrive.ops.partitions.overview import DatasetLine, PausedSource
from redrive.partitions.store.rows import POLICY

NOW = datetime(2026, 1, 31, 3, 0, tzinfo=timezone.utc)
WELL = KindLine(
    name="mail", waiting=0, due_since=None, next_due=None, running=0, retry_wait=0, retry_more=False, dead=0, blocked=0,
    failed=NONE, died=NONE, parked=None, parked_since=None, workers=1, done=0, submitted=0,
)  # fmt: skip
FACTS = OverviewFacts(
    NOW,
    alive=1,
    seen_at=NOW,
    kinds=(WELL,),
    expired=CountSince(),
    all_report_kinds=True,
    registered={"mail"},
    late=CountSince(),
    paused=(),
)
LATE = replace(WELL, waiting=7, due_since=NOW - timedelta(minutes=9))
MANY = Trend((0,) * 23 + (40,), 40, 40, NOW - timedelta(minutes=20), recent=True)


def problems_of(facts: OverviewFacts) -> list[tuple[str, str, str | None, int]]:
    return [(one.name, one.severity, one.kind, one.count) for one in list_findings(facts)]


def test_retries_are_not_counted_as_first_attempts_too() -> None:
    assert replace(WELL, waiting=13, retry_wait=13).first_attempts == 0
    assert replace(WELL, waiting=13, retry_wait=3).first_attempts == 10


def test_a_healthy_ledger_has_no_problems() -> None:
    assert list_findings(FACTS) == []
    assert list_findings(replace(FACTS, alive=0)) == []  # no worker is online, and no job is queued
    fresh = replace(WELL, waiting=1000, due_since=NOW - timedelta(seconds=30))
    assert list_findings(replace(FACTS, kinds=(fresh,))) == []
    later = replace(WELL, waiting=5, next_due=NOW + timedelta(hours=1))
    assert list_findings(replace(FACTS, kinds=(later,), alive=0)) == []


def test_queued_jobs_without_workers_are_a_problem() -> None:
    (one,) = list_findings(replace(FACTS, kinds=(LATE,), alive=0, seen_at=NOW - timedelta(seconds=95)))
    assert (one.name, one.severity, one.count, one.since) == ("no workers", "critical", 7, NOW - timedelta(seconds=95))
    assert one.says == "Workers: none online (last seen 95 s ago), but 7 jobs (7 mail) queued"
    (never,) = list_findings(replace(FACTS, kinds=(replace(LATE, waiting=1),), alive=0, seen_at=None))
    assert never.says == "Workers: none online (none seen so far), but 1 job (1 mail) queued"
    assert never.since == LATE.due_since


def test_queued_partitions_without_workers_are_a_problem() -> None:
    some = CountSince(3, NOW - timedelta(minutes=5))
    (one,) = list_findings(replace(FACTS, alive=0, seen_at=None, late=some))
    assert (one.name, one.severity, one.count, one.since) == ("no workers", "critical", 3, some.since)
    assert one.says == "Workers: none online (none seen so far), but 3 partitions queued"
    (both,) = list_findings(replace(FACTS, kinds=(LATE,), alive=0, late=CountSince(1, NOW - timedelta(minutes=5))))
    assert both.says.endswith("but 7 jobs (7 mail) and 1 partition queued")
    assert list_findings(replace(FACTS, late=some)) == []  # workers are online and will claim them


def test_failing_partitions_are_a_problem() -> None:
    some = DatasetLine("crm", "orders/eu", 900, 3, 0, 12, 8, lately=12)
    (one,) = list_findings(replace(FACTS, datasets=(some, replace(some, query="visits", lately=9))))
    assert (one.name, one.severity, one.count, one.kind) == ("partitions failing", "warning", 12, "crm/orders%2Feu")
    assert one.says == "crm/orders%2Feu: 12 partitions rejected in the last hour; 20 failed or rejected in total"
    assert one.mend == "redrive failures --kind crm/orders%2Feu"
    (more,) = list_findings(replace(FACTS, datasets=(replace(some, failed=992, lately=1000),)))
    assert more.says == "crm/orders%2Feu: 1,000+ partitions rejected in the last hour"


def test_a_paused_source_is_a_problem() -> None:
    (one,) = list_findings(replace(FACTS, paused=(PausedSource("crm eu", "by jane, until it is unpaused (moves)"),)))
    assert one.says == "Source crm eu: paused by jane, until it is unpaused (moves)"
    assert one.mend == "redrive resume source 'crm eu' --because \"...\""


def test_late_jobs_differ_from_unregistered_ones() -> None:
    assert problems_of(replace(FACTS, kinds=(LATE,))) == [("late", "warning", "mail", 7)]
    assert problems_of(replace(FACTS, kinds=(LATE,), registered=set())) == [("unregistered", "warning", "mail", 7)]
    assert problems_of(replace(FACTS, kinds=(LATE,), registered=set(), all_report_kinds=False)) == [
        ("late", "warning", "mail", 7)
    ]


def test_parked_and_failing_job_types_are_problems() -> None:
    parked = replace(LATE, parked="503", parked_since=NOW)
    assert problems_of(replace(FACTS, kinds=(parked,))) == [("parked", "critical", "mail", 7)]
    probed = replace(parked, probe_at=NOW + timedelta(seconds=12))
    (problem,) = list_findings(replace(FACTS, kinds=(probed,)))
    assert problem.says.endswith("resumes it; next probe in 12 s (03:00:12 UTC)")
    failing = replace(WELL, name="a b", failed=MANY, retry_wait=40)
    dying = replace(WELL, name="c", failed=MANY, died=MANY, dead=41)
    found_ = list_findings(replace(FACTS, kinds=(failing, dying)))
    assert [(one.name, one.kind) for one in found_] == [("failing", "a b"), ("dead letters growing", "c")]
    assert [one.mend for one in found_] == ["redrive failures --kind 'a b'", "redrive failures --kind c"]
    assert all(one.since == MANY.since and one.says.startswith(f"{one.kind}: 40 ") for one in found_)
    assert all("(average before: 0/h), rising" in one.says for one in found_)


def test_past_failures_are_not_a_problem() -> None:
    assert list_findings(replace(FACTS, kinds=(replace(WELL, failed=MANY, died=MANY),))) == []
    assert problems_of(replace(FACTS, kinds=(replace(WELL, failed=MANY, died=MANY, retry_wait=1),))) == [
        ("failing", "warning", "mail", 40)
    ]


def test_dead_letters_that_stopped_growing_are_reported_as_such() -> None:
    (one,) = list_findings(replace(FACTS, kinds=(replace(WELL, died=replace(MANY, recent=False), dead=40),)))
    assert "(average before: 0/h), none in the last 10 minutes; 40 waiting for a decision" in one.says


def test_the_most_severe_problem_comes_first() -> None:
    facts = replace(FACTS, kinds=(LATE, replace(WELL, failed=MANY, retry_wait=1)), expired=CountSince(2, NOW))
    assert [one.severity for one in list_findings(facts)] == ["critical", "warning", "warning"]
    assert [one.name for one in list_findings(facts)] == ["dangling leases", "failing", "late"]


def test_batch_items_given_up_are_a_problem_from_ten_on() -> None:
    assert list_findings(replace(FACTS, items={"tiles": 9})) == []
    (one,) = list_findings(replace(FACTS, items={"a": 8, "b": 3, "c": 2, "d": 1}))
    assert (one.name, one.severity, one.count, one.kind) == ("items given up", "warning", 14, None)
    assert one.says.startswith("Batch items: 14 given up in the last hour (8 a, 3 b, 2 c, …)")


def test_a_halted_backfill_points_to_its_status() -> None:
    halted = HaltedSweep(7, "backfill", "5 of 20 verdicts are rejections", 90, NOW)
    (problem,) = list_findings(replace(FACTS, halted=(halted,)))
    assert (problem.name, problem.severity, problem.count) == ("sweep halted", "warning", 90)
    assert problem.says == "Sweep 7 (backfill): halted, 5 of 20 verdicts are rejections; 90 partitions left"
    assert problem.mend == "redrive backfill status 7"


def test_a_failing_customers_function_is_named_with_its_dataset() -> None:
    error = "CustomersFailed: crm/orders: customers() failed: FileNotFoundError: customers.txt"
    (problem,) = list_findings(replace(FACTS, failing={"datasets": (error, ["w1"])}))
    assert (problem.name, problem.severity) == ("task failing", "critical")
    assert problem.says == "crm/orders: customers() failed: FileNotFoundError: customers.txt"
    assert problem.mend.startswith("fix the function of customers= in the app")
    (other,) = list_findings(replace(FACTS, failing={"datasets": ("OSError: disk", ["w1"])}))
    assert other.says == "Workers: 1 worker cannot start scheduled extractions (w1: OSError: disk)"


def test_a_source_paused_after_an_outage_is_as_severe_as_a_job_type() -> None:
    outage, decision = PausedSource("crm", "after an outage", POLICY), PausedSource("crm", "by ann", "ann")
    (problem,) = list_findings(replace(FACTS, paused=(outage,)))
    assert (problem.severity, problem.is_command) == ("critical", False)
    assert problem.mend.startswith("restore the source; to start now, without a probe: `redrive resume parked crm")
    (problem,) = list_findings(replace(FACTS, paused=(decision,)))
    assert (problem.severity, problem.is_command) == ("warning", True)
