"""The messages of alerts: JSON for webhooks, and Slack's markup."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from redrive.ops.alerts.changes import AlertChange, OpenAlert, plan_alerts
from redrive.ops.alerts.message import MAX_SLACK_ALERTS, AlertNotice, slack_body, webhook_body
from redrive.ops.health.overview_rules import Finding, Health

NOW = datetime(2026, 11, 18, 12, tzinfo=timezone.utc)
NO_WORKERS = Finding(
    "no workers", "critical", "Workers: none online (last seen 12 min ago), but 3 jobs queued", 3,
    NOW - timedelta(minutes=12), "redrive work module:app",
)  # fmt: skip
PARKED = Finding(
    "parked", "warning", "crm.sync: paused after an outage (<503> & more)", 1, None,
    "restore the service that these jobs call", is_command=False, subject="crm.sync",
)  # fmt: skip
RESOLVED = AlertChange("resolved", OpenAlert("late", "crm.sync", "warning", NOW - timedelta(minutes=9), NOW, NOW), None)


def notice(*findings: Finding, changes: tuple[AlertChange, ...] = ()) -> AlertNotice:
    health = Health("postgresql://app@db/shop", findings, (), None, NOW)
    plan = plan_alerts({}, findings, NOW, 0)
    return AlertNotice(health, (*plan.changes, *changes), NOW, lambda fix: fix.replace("module:app", "shop:app"))


@pytest.mark.req("X-7")
def test_a_webhook_gets_each_change_with_its_fix() -> None:
    body = webhook_body(notice(NO_WORKERS, PARKED, changes=(RESOLVED,)))
    assert (body["format"], body["ledger"], body["severity"]) == (1, "postgresql://app@db/shop", "critical")
    assert body["sent_at"] == "2026-11-18T12:00:00Z"
    assert body["alerts"][0] == {
        "id": "no workers", "change": "new", "name": "no workers", "subject": "", "severity": "critical",
        "text": "Workers: none online (last seen 12 min ago), but 3 jobs queued. Since 2026-11-18 11:48:00 UTC.",
        "count": 3, "since": "2026-11-18T11:48:00Z", "fix": "redrive work shop:app", "is_command": True,
    }  # fmt: skip
    assert [alert["id"] for alert in body["alerts"]] == ["no workers", "parked/crm.sync", "late/crm.sync"]
    assert (body["alerts"][1]["fix"], body["alerts"][1]["is_command"]) == ("restore the service that these jobs call", False)
    resolved = body["alerts"][2]
    assert (resolved["change"], resolved["fix"], resolved["count"]) == ("resolved", None, None)
    assert resolved["text"] == "late, crm.sync (open for 9 min)."
    json.dumps(body)


@pytest.mark.req("X-7")
def test_slack_gets_one_text_with_escaped_markup() -> None:
    assert slack_body(notice(NO_WORKERS, PARKED, changes=(RESOLVED,))) == {
        "text": "*Redrive: 2 new, 1 resolved* (postgresql://app@db/shop)\n"
        ":red_circle: *New, critical:* Workers: none online (last seen 12 min ago), but 3 jobs queued. "
        "Since 2026-11-18 11:48:00 UTC.\n"
        "→ `redrive work shop:app`\n"
        ":large_yellow_circle: *New, warning:* crm.sync: paused after an outage (&lt;503&gt; &amp; more).\n"
        "→ restore the service that these jobs call\n"
        ":white_check_mark: *Resolved:* late, crm.sync (open for 9 min)."
    }


def test_a_command_that_cannot_be_completed_is_an_instruction() -> None:
    words = notice(NO_WORKERS)._replace(complete=lambda _: "start a worker of the app that has these jobs")
    assert webhook_body(words)["alerts"][0]["is_command"] is False
    assert "→ start a worker" in slack_body(words)["text"]


def test_a_slack_message_is_bounded() -> None:
    many = [
        Finding("late", "warning", "x" * 5000, 1, None, "redrive overview", subject=str(each))
        for each in range(MAX_SLACK_ALERTS + 3)
    ]
    text = slack_body(notice(*many))["text"]
    assert text.count("…") == MAX_SLACK_ALERTS
    assert text.endswith("and 3 more; run `redrive doctor`")
    assert len(text) < 40_000


def test_secrets_in_a_finding_are_redacted() -> None:
    leaky = Finding("task failing", "critical", "Workers: password=hunter2-s3cret refused", 1, None, "check the server")
    assert "hunter2" not in json.dumps([webhook_body(notice(leaky)), slack_body(notice(leaky))])
