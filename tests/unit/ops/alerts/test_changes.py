"""Which findings are new, escalated, repeated and resolved: a pure function of findings and time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from redrive.ops.alerts.changes import MAX_OPEN_ALERTS, AlertPlan, OpenAlerts, plan_alerts
from redrive.ops.health.overview_rules import Finding, OverviewFinding, Severity

START = datetime(2026, 11, 18, 12, tzinfo=timezone.utc)
HOUR = 3600.0


def finding(name: str = "late", subject: str = "crm.sync", severity: Severity = "warning", count: int = 1) -> Finding:
    return Finding(name, severity, f"{subject}: {count} late", count, None, "redrive overview", subject=subject)


def changes(plan: AlertPlan) -> list[tuple[str, str]]:
    return [(each.change, each.alert.title) for each in plan.changes]


class Target:
    """A target that was told everything so far, and the time of the next check."""

    def __init__(self, repeat: float = 4 * HOUR) -> None:
        self.known: OpenAlerts = {}
        self.now = START
        self.repeat = repeat

    def check(self, *findings: Finding, after: float = 300.0, sent: bool = True) -> list[tuple[str, str]]:
        self.now += timedelta(seconds=after)
        plan = plan_alerts(self.known, findings, self.now, self.repeat)
        self.known = plan.if_sent if sent else plan.if_unsent
        return changes(plan)


@pytest.mark.req("X-7")
def test_a_finding_is_reported_once_whatever_its_count_is() -> None:
    target = Target()
    assert target.check(finding(count=1)) == [("new", "late, crm.sync")]
    assert target.check(finding(count=99)) == []


def test_a_warning_that_becomes_critical_is_reported_again_and_not_when_it_eases() -> None:
    target = Target()
    target.check(finding())
    assert target.check(finding(severity="critical")) == [("escalated", "late, crm.sync")]
    assert target.check(finding(severity="critical")) == []
    assert target.check(finding()) == []
    assert target.check(finding(severity="critical")) == [("escalated", "late, crm.sync")]


def test_a_finding_is_resolved_when_two_checks_do_not_have_it() -> None:
    target = Target()
    target.check(finding())
    assert target.check() == []
    assert target.check() == [("resolved", "late, crm.sync")]
    assert target.known == {}
    assert target.check() == []


def test_a_finding_that_comes_and_goes_is_neither_resolved_nor_new() -> None:
    target = Target()
    target.check(finding())
    assert [target.check(*([finding()] * (each % 2))) for each in range(6)] == [[]] * 6


def test_checks_of_two_watchers_in_one_second_do_not_resolve_a_finding() -> None:
    target = Target()
    target.check(finding())
    target.check()
    assert target.check(after=1) == []
    assert target.check(after=59) == [("resolved", "late, crm.sync")]


def test_an_open_finding_is_repeated_after_the_interval() -> None:
    target = Target(repeat=HOUR)
    target.check(finding())
    assert target.check(finding(), after=HOUR - 1) == []
    assert target.check(finding(), after=1) == [("repeated", "late, crm.sync")]
    assert target.check(finding(), after=1) == []
    never = Target(repeat=0)
    never.check(finding())
    assert never.check(finding(), after=365 * 24 * HOUR) == []


def test_undelivered_changes_are_planned_again() -> None:
    target = Target()
    assert target.check(finding(), sent=False) == [("new", "late, crm.sync")]
    assert target.check(finding()) == [("new", "late, crm.sync")]
    assert target.check(finding(severity="critical"), sent=False) == [("escalated", "late, crm.sync")]
    assert target.check(finding(severity="critical")) == [("escalated", "late, crm.sync")]
    target.check(sent=False)
    assert target.check(sent=False) == [("resolved", "late, crm.sync")]
    assert target.check() == [("resolved", "late, crm.sync")]


def test_a_finding_that_came_and_went_while_the_target_was_away_is_not_reported() -> None:
    target = Target()
    target.check(finding(), sent=False)
    assert target.check() == []
    assert target.known == {}


def test_name_and_subject_distinguish_findings() -> None:
    target = Target()
    kinds = OverviewFinding("late", "warning", "x: late", 1, None, "redrive overview", kind="mail.send")
    found = [finding(), kinds, finding("failing"), finding(), finding(severity="critical")]
    assert target.check(*found) == [("new", "late, crm.sync"), ("new", "late, mail.send"), ("new", "failing, crm.sync")]


def test_the_start_of_the_problem_is_kept() -> None:
    since = START - timedelta(hours=2)
    late = Finding("no workers", "critical", "Workers: none online", 1, since, "redrive work module:app")
    plan = plan_alerts({}, [late], START, HOUR)
    assert plan.changes[0].alert.opened_at == since
    later = plan_alerts(plan.if_sent, [late], START + timedelta(hours=1), HOUR)
    assert later.changes[0].alert.opened_at == since


def test_the_number_of_findings_is_bounded() -> None:
    many = [finding(subject=str(each)) for each in range(MAX_OPEN_ALERTS + 5)]
    assert len(plan_alerts({}, many, START, 0).changes) == MAX_OPEN_ALERTS
