"""`redrive watch`: output, exit codes, misuse and signals. The URL of a target is never printed."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.ledger import Ledger, NewJob
from redrive.testing import FaultServer, instant
from tests.unit.cli.command import call
from tests.zygote import warm

pytestmark = pytest.mark.req("X-7")
SECRET = "services/T0123/B4567/s3cr3t"


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    with FaultServer(200) as started:
        monkeypatch.setenv("REDRIVE_ALERTS_SLACK", f"{started.url}/{SECRET}")
        yield started


def watch(*options: str) -> tuple[int, str]:
    """Run the command without waiting between the attempts of a message."""
    with instant():
        status, printed = call("watch", *options, width=300)
    assert "s3cr3t" not in printed
    return status, printed


def test_once_sends_new_findings_and_prints_them(ledger: Ledger, slack: FaultServer) -> None:
    assert watch("--once") == (0, "No problems found; 0 alerts sent.\n")
    ledger.submit(NewJob("mail", "a"))
    ledger.settle(ledger.claim({"mail": 1}, worker="w")[0].dead("attempts"))
    status, printed = watch("--once")
    alert, summary = printed.splitlines()
    assert status == 0
    assert f" UTC slack ({slack.url}): New, warning: Dead letters: 1 waiting for a decision (1 mail). Since " in alert
    assert summary == "1 problem found; 1 alert sent."
    assert watch("--once") == (0, "1 problem found; 0 alerts sent.\n")
    (request,) = slack.requests
    assert "→ `redrive dead list`" in json.loads(request.body)["text"]


def test_once_as_json_has_the_findings_and_the_alerts(url: str, ledger: Ledger, slack: FaultServer) -> None:
    ledger.submit(NewJob("mail", "a"))
    ledger.settle(ledger.claim({"mail": 1}, worker="w")[0].dead("attempts"))
    status, printed = watch("--once", "--json", "--ledger", url)
    report = json.loads(printed)
    assert (status, report["event"], report["is_ledger_checked"]) == (0, "check", True)
    assert report["health"]["severity"] == "warning"
    (target,) = report["targets"]
    assert (target["target"], target["delivery"]) == (f"slack ({slack.url})", "sent")
    assert target["changes"][0]["change"] == "new"
    assert f"→ `redrive dead list --ledger {url}`" in json.loads(slack.requests[0].body)["text"]


def test_an_alert_that_is_not_delivered_is_exit_code_1(ledger: Ledger, slack: FaultServer) -> None:
    ledger.submit(NewJob("mail", "a"))
    ledger.settle(ledger.claim({"mail": 1}, worker="w")[0].dead("attempts"))
    slack.script(500)
    status, printed = watch("--once")
    line = f"redrive: slack ({slack.url}): not delivered after 3 attempts (HTTP 500); retried at the next check"
    assert (status, sorted(printed.splitlines())) == (1, ["1 problem found; 0 alerts sent.", line])


def test_a_ledger_that_cannot_be_checked_is_reported_and_exit_code_3(slack: FaultServer, tmp_path: Path) -> None:
    status, printed = watch("--once", "--ledger", f"sqlite:///{tmp_path}/no.db")
    assert (status, "New, critical: Ledger: the check failed (no ledger at" in printed) == (3, True), printed
    assert slack.count == 1


@pytest.mark.usefixtures("ledger")
def test_a_test_alert_is_sent_each_time(slack: FaultServer) -> None:
    for _ in range(2):
        status, printed = watch("--test")
        assert (status, printed.endswith("New, warning: Test: this is a test alert; nothing is wrong.\n")) == (0, True)
    assert slack.count == 2
    slack.script(410)
    status, printed = watch("--test")
    assert (status, "(HTTP 410); check the URL in REDRIVE_ALERTS_SLACK" in printed) == (1, True)


@pytest.mark.parametrize(
    ("environment", "options", "problem"),
    [
        ({}, (), "alerts: no target; set REDRIVE_ALERTS_WEBHOOK or REDRIVE_ALERTS_SLACK to a URL"),
        ({"SLACK": "s3cr3t"}, (), "alerts.slack: not a URL; set REDRIVE_ALERTS_SLACK to an address that begins with"),
        ({"SLAK": "https://x/s3cr3t"}, (), "unknown variable REDRIVE_ALERTS_SLAK: did you mean 'REDRIVE_ALERTS_SLACK'?"),
        ({"SLACK": "https://x/s3cr3t", "INTERVAL": "0"}, (), "alerts.interval: must be at least 5 seconds, not 0"),
        ({"SLACK": "https://x/s3cr3t"}, ("--interval", "1"), "Invalid value for '--interval'"),
        ({"SLACK": "https://x/s3cr3t"}, ("--once", "--test"), "pass one of the two"),
        ({"SLACK": "https://x/s3cr3t"}, ("nothing.here:app",), "module nothing.here cannot be imported"),
    ],
)
@pytest.mark.usefixtures("ledger")
def test_misuse_is_one_line_and_exit_code_2(
    environment: dict[str, str], options: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(f"REDRIVE_ALERTS_{name}", value)
    status, printed = watch(*options)
    assert (status, problem in printed) == (2, True), printed


@pytest.mark.usefixtures("ledger")
def test_a_missing_extra_is_one_line(slack: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from redrive import http

    monkeypatch.delitem(http.__dict__, "Client", raising=False)
    monkeypatch.delitem(sys.modules, "redrive.http.client", raising=False)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    status, printed = watch("--once")
    assert (status, printed) == (2, 'redrive: alerts: redrive.http.Client needs httpx2: pip install "redrive[http]"\n')


@pytest.mark.parametrize("as_json", [False, True])
def test_a_signal_stops_the_watcher(url: str, ledger: Ledger, slack: FaultServer, tmp_path: Path, as_json: bool) -> None:
    ledger.submit(NewJob("mail", "a"))
    ledger.settle(ledger.claim({"mail": 1}, worker="w")[0].dead("attempts"))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    options = ["watch", "--interval", "3600", *(["--json"] if as_json else [])]
    environment = dict(os.environ) | {"REDRIVE_LEDGER": url}
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # The program opens it for writing, and must not wait.
    child = warm().fork("tests.unit.cli.command", options, output=pipe, folder=tmp_path, environment=environment)
    os.set_blocking(reader, True)
    with os.fdopen(reader, encoding="utf-8") as output:
        lines = [output.readline() for _ in range(2)]
        os.kill(child, signal.SIGTERM)
        assert warm().wait(child) == 0
    assert "s3cr3t" not in "".join(lines)
    if as_json:
        assert [json.loads(line)["event"] for line in lines] == ["started", "check"]
    else:
        assert lines[0] == f"Checking every 60 min; alerts to slack ({slack.url}).\n"
        assert "New, warning: Dead letters" in lines[1]
