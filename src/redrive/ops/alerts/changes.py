"""What a target must be told, as a pure function of the findings and of what it was told before.

A finding is reported when it is new, when it becomes critical, and again after the repeat interval
while it is open. It is resolved when two checks, at least a minute apart, do not have it: a finding
at the edge of its limit would otherwise be reported and resolved at every check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from ..health.overview_rules import Finding, Severity

ChangeName: TypeAlias = Literal["new", "escalated", "repeated", "resolved"]
RESOLVE_AFTER = timedelta(seconds=60)
"""Time between the first check without a finding and the check that resolves it."""
MAX_OPEN_ALERTS = 1_000
"""Findings of one check that are followed, the critical ones first."""


class OpenAlert(NamedTuple):
    """A finding that a target was told about. Immutable."""

    name: str
    subject: str
    severity: Severity
    opened_at: datetime
    sent_at: datetime
    absent_since: datetime | None = None
    """First check without the finding. None: the last check had it."""

    @property
    def title(self) -> str:
        """Name and subject, such as `late, crm.sync`."""
        return f"{self.name}, {self.subject}" if self.subject else self.name


OpenAlerts: TypeAlias = Mapping[tuple[str, str], OpenAlert]
"""What a target was told, by name and subject."""


class AlertChange(NamedTuple):
    """One alert to send. Immutable."""

    change: ChangeName
    alert: OpenAlert
    """As it is stored once it is sent."""
    finding: Finding | None
    """None: it is resolved."""


class AlertPlan(NamedTuple):
    """What to send, and what to store. Immutable."""

    changes: tuple[AlertChange, ...]
    if_sent: OpenAlerts
    if_unsent: OpenAlerts
    """Without the changes, so that the next check plans them again."""


def plan_alerts(
    known: OpenAlerts, findings: Iterable[Finding], now: datetime, repeat: float, /
) -> AlertPlan:
    """Compare the findings of a check with what a target was told.

    Args:
        known: What the target was told.
        findings: The current findings, the critical ones first.
        now: Time of the check, by the clock of the ledger.
        repeat: Seconds after which an open finding is reported again. 0: never.
    """
    current: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        if len(current) < MAX_OPEN_ALERTS:
            current.setdefault(finding.identity, finding)
    changes: list[AlertChange] = []
    if_sent: dict[tuple[str, str], OpenAlert] = {}
    if_unsent: dict[tuple[str, str], OpenAlert] = {}
    for identity, finding in current.items():
        before = known.get(identity)
        change = _change_of(before, finding, now, repeat)
        opened = (finding.since or now) if before is None else before.opened_at
        alert = OpenAlert(*identity, finding.severity, opened, now)
        if change is not None:
            changes.append(AlertChange(change, alert, finding))
        if before is not None:
            severity = before.severity if change == "escalated" else finding.severity
            kept = before._replace(severity=severity, absent_since=None)
            if_unsent[identity] = kept
            alert = alert if change is not None else kept
        if_sent[identity] = alert
    for identity, before in known.items():
        if identity in current:
            continue
        absent = before if before.absent_since else before._replace(absent_since=now)
        if_unsent[identity] = absent
        if before.absent_since is not None and now - before.absent_since >= RESOLVE_AFTER:
            changes.append(AlertChange("resolved", absent, None))
        else:
            if_sent[identity] = absent
    return AlertPlan(tuple(changes), if_sent, if_unsent)


def _change_of(
    before: OpenAlert | None, finding: Finding, now: datetime, repeat: float
) -> ChangeName | None:
    if before is None:
        return "new"
    if (before.severity, finding.severity) == ("warning", "critical"):
        return "escalated"
    is_due = repeat > 0 and now - before.sent_at >= timedelta(seconds=repeat)
    return "repeated" if is_due else None
