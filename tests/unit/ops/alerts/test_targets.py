"""Targets of alerts: from settings and files, and a real server that fails and stalls."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from redrive import retry
from redrive.ops.alerts import targets
from redrive.ops.alerts.changes import plan_alerts
from redrive.ops.alerts.message import AlertNotice
from redrive.ops.alerts.targets import AlertSender, AlertTarget, TargetName, configured_targets
from redrive.ops.health.overview_rules import Finding, Health
from redrive.ops.project.user_code import Unreadable
from redrive.settings import AlertSettings
from redrive.testing import Answer, FaultServer, instant, refused

NOW = datetime(2026, 11, 18, 12, tzinfo=timezone.utc)
SECRET = "T0123/B4567/s3cr3tPartOfTheUrl"
LATE = Finding("late", "warning", "crm.sync: late", 1, None, "redrive overview", subject="crm.sync")
NOTICE = AlertNotice(Health("sqlite:///redrive.db", (LATE,), (), None, NOW), plan_alerts({}, [LATE], NOW, 0).changes, NOW, str)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(200) as started:
        yield started


def send(server: FaultServer, *, name: TargetName = "slack", attempt_seconds: float = 10.0) -> str | None:
    """Send one alert, without waiting between the attempts."""
    settings: dict[str, Any] = {name: f"{server.url}/services/{SECRET}"}
    (target,) = configured_targets(AlertSettings(**settings))
    sender = AlertSender(target, policy=retry(targets.POLICY, attempt_timeout=attempt_seconds))
    try:
        with instant():
            return sender.send(NOTICE, "7-abc")
    finally:
        sender.close()


@pytest.mark.req("X-7")
@pytest.mark.parametrize("name", ["webhook", "slack"])
def test_a_message_is_retried_with_the_same_idempotency_key(server: FaultServer, name: TargetName) -> None:
    server.script(503, "reset", 200)
    assert send(server, name=name) is None
    assert {request.path for request in server.requests} == {f"/services/{SECRET}"}
    (key,) = {request.headers["idempotency-key"] for request in server.requests}
    assert key.endswith(":alert:7-abc")
    assert len({request.body for request in server.requests}) == 1
    assert ("text" in json.loads(server.requests[0].body)) is (name == "slack")


@pytest.mark.req("X-7")
@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (503, "not delivered after 3 attempts (HTTP 503); retried at the next check"),
        ("close", "not delivered after 3 attempts (RemoteProtocolError); retried at the next check"),
        ("garbage", "not delivered after 3 attempts (RemoteProtocolError); retried at the next check"),
        (404, "not delivered after 1 attempt (HTTP 404); check the URL in REDRIVE_ALERTS_SLACK"),
        (302, "not delivered after 1 attempt (HTTP 302); check the URL in REDRIVE_ALERTS_SLACK"),
        (308, "not delivered after 1 attempt (HTTP 308); check the URL in REDRIVE_ALERTS_SLACK"),
    ],
)
def test_a_target_that_fails_is_one_line_without_the_url(
    server: FaultServer, script: int, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.script(script)
    assert send(server) == f"slack ({server.url}): {problem}"
    assert "s3cr3t" not in caplog.text
    assert caplog.records


@pytest.mark.req("X-7")
def test_a_target_that_stalls_is_given_up_after_the_timeout(server: FaultServer) -> None:
    server.script("hang")
    problem = send(server, attempt_seconds=0.05)
    assert problem == f"slack ({server.url}): not delivered after 3 attempts (ReadTimeout); retried at the next check"
    assert server.count == 3


def test_a_target_that_refuses_connections_is_one_line() -> None:
    with refused() as address, instant():
        sender = AlertSender(AlertTarget("webhook", f"{address}/hook"))
        problem = sender.send(NOTICE, "1-a")
        sender.close()
    assert problem == f"webhook ({address}): not delivered after 3 attempts (ConnectError); retried at the next check"


def test_a_retry_after_that_does_not_fit_waits_for_the_next_check(server: FaultServer) -> None:
    server.script(Answer(429, {"Retry-After": "3600"}))
    assert send(server) == f"slack ({server.url}): not delivered after 1 attempt (HTTP 429); retried at the next check"


def test_credentials_and_query_of_the_url_are_sent_and_not_shown(server: FaultServer) -> None:
    url = f"http://ann:hunter2-s3cret@127.0.0.1:{server.port}/hook?token=abcdefgh12345"
    (target,) = configured_targets(AlertSettings(webhook=url))
    assert (str(target), repr(target)) == (f"webhook ({server.url})", "AlertTarget(name='webhook')")
    sender = AlertSender(target)
    assert sender.send(NOTICE, "1-a") is None
    sender.close()
    (request,) = server.requests
    assert (request.path, request.headers["authorization"][:6]) == ("/hook?token=abcdefgh12345", "Basic ")


def test_urls_come_from_files(tmp_path: Path) -> None:
    file = tmp_path / "slack"
    file.write_text("https://hooks.slack.com/services/T/B/x\n")
    (target,) = configured_targets(AlertSettings(slack_file=str(file)))
    assert target == AlertTarget("slack", "https://hooks.slack.com/services/T/B/x")
    assert target.target_id.startswith("slack-")
    assert target.target_id != AlertTarget("slack", "https://hooks.slack.com/services/T/B/y").target_id


@pytest.mark.req("X-7")
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "alerts: no target; set REDRIVE_ALERTS_WEBHOOK or REDRIVE_ALERTS_SLACK to a URL"),
        ({"slack": "hooks.slack.com/services/s3cr3t"}, "alerts.slack: not a URL; set REDRIVE_ALERTS_SLACK to"),
        ({"webhook": "https:///s3cr3t"}, "alerts.webhook: not a URL; set REDRIVE_ALERTS_WEBHOOK to an address"),
        ({"webhook": "https://[s3cr3t/hook"}, "alerts.webhook: not a URL"),
        ({"webhook": "https://host:99999/s3cr3t"}, "alerts.webhook: not a URL"),
        ({"webhook": "https://host/s3cr3t of mine"}, "alerts.webhook: it has spaces"),
        ({"slack": "https://a/s3cr3t", "slack_file": "/x"}, "alerts.slack: also set by alerts.slack_file; set one"),
        ({"slack_file": "/no/such/file"}, "alerts.slack_file: '/no/such/file' cannot be read (No such file"),
        ({"webhook_file": "/dev/null"}, "alerts.webhook_file: '/dev/null' is empty; write the URL into it"),
    ],
)
def test_a_wrong_setting_is_an_error_without_its_value(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(Unreadable) as raised:
        configured_targets(AlertSettings(**settings))
    assert str(raised.value).startswith(problem)
    assert "s3cr3t" not in str(raised.value)
