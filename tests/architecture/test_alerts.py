"""The alert rules of deploy/, run by promtool from zero: each fires when it should, and not otherwise."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers import promtool
from tests.servers.process import ServerMissing

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
JOB = 'operation="mail",layer="job",reason="attempts"'
RULES = {rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}

# Series from the first scrape on (`_`: no sample yet), the time of the check, and the labels of the alert.
FIRING: dict[str, list[tuple[dict[str, str], str, dict[str, str]]]] = {
    "RedriveLedgerAway": [({"redrive_ledger_up": "1 0x10"}, "5m", {})],
    "RedriveNoWorker": [
        ({'redrive_workers{state="alive"}': "0x10", 'redrive_jobs{kind="mail",state="waiting"}': "3x10"}, "5m", {}),
    ],
    "RedriveWorkerSilent": [({'redrive_workers{state="silent"}': "1x10"}, "8m", {})],
    "RedriveOldestDue": [
        (
            {'redrive_oldest_due_seconds{kind="mail"}': "0 400x12", 'redrive_kind_parked{kind="mail"}': "0x12"},
            "8m",
            {"kind": "mail"},
        ),
    ],
    "RedriveKindParked": [({'redrive_kind_parked{kind="mail"}': "1x15"}, "12m", {"kind": "mail"})],
    "RedriveDeadLetters": [
        # The first failure ever: the counter starts at 1, so its increase() is 0.
        ({f"redrive_giveups_total{{{JOB}}}": "_x5 1x10"}, "8m", {"operation": "mail"}),
        ({f"redrive_giveups_total{{{JOB}}}": "4x20 5x10"}, "23m", {"operation": "mail"}),
    ],
    "RedriveDeadLettersStand": [({'redrive_jobs{kind="mail",state="dead"}': "2x1500"}, "1441m", {"kind": "mail"})],
    "RedriveLeasesLost": [
        ({'redrive_events_total{event="lost_lease",operation="mail"}': "_x5 1x10"}, "8m", {"operation": "mail"}),
        ({'redrive_events_total{event="lost_lease",operation="mail"}': "1x20 2x10"}, "23m", {"operation": "mail"}),
    ],
    "RedriveLateEnds": [
        ({'redrive_jobs_late_total{kind="mail"}': "_x5 1x10"}, "8m", {"kind": "mail"}),
        ({'redrive_jobs_late_total{kind="mail"}': "0x20 1x10"}, "23m", {"kind": "mail"}),
    ],
    "RedriveFailing": [
        (
            {
                'redrive_attempts_total{layer="job",operation="mail",outcome="giveup"}': "_x2 0+9x40",
                'redrive_attempts_total{layer="job",operation="mail",outcome="success"}': "0+1x40",
            },
            "30m",
            {"layer": "job", "operation": "mail"},
        ),
    ],
    "RedriveJournalDrops": [({"redrive_journal_dropped_total": "0x5 3x10"}, "8m", {})],
    "RedriveAuditCut": [({"redrive_audit_entries": "0+1x20 5x10"}, "25m", {})],
}
QUIET: dict[str, tuple[dict[str, str], str]] = {
    "RedriveDeadLetters": ({f"redrive_giveups_total{{{JOB}}}": "_x5 1x60"}, "50m"),
    "RedriveLeasesLost": ({'redrive_events_total{event="lost_lease",operation="mail"}': "_x5 1x60"}, "50m"),
    "RedriveLateEnds": ({'redrive_jobs_late_total{kind="mail"}': "0x60"}, "50m"),
    "RedriveNoWorker": (
        {'redrive_workers{state="alive"}': "1x10", 'redrive_jobs{kind="mail",state="waiting"}': "3x10"}, "5m",
    ),
    "RedriveJournalDrops": ({"redrive_journal_dropped_total": "0x20"}, "10m"),
    "RedriveAuditCut": ({"redrive_audit_entries": "_x5 0+1x20"}, "20m"),
}  # fmt: skip


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return promtool.bring()
    except ServerMissing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"PROMTOOL IS MISSING: {missing}")


def run(program: Path, folder: Path, tests: list[dict[str, Any]]) -> None:
    # Without annotations, because they contain values. The tests of deploy/ check them.
    bare = yaml.safe_load(ALERTS.read_text())
    for rule in bare["groups"][0]["rules"]:
        rule["annotations"] = {}
    rules, path = folder / "alerts.yml", folder / "test.yml"
    rules.write_text(yaml.safe_dump(bare))
    path.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([program, "test", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def scenario(series: dict[str, str], alert: str, at: str, fires: list[dict[str, Any]]) -> dict[str, Any]:
    given = [{"series": name, "values": values} for name, values in series.items()]
    wanted = {"eval_time": at, "alertname": alert, "exp_alerts": fires}
    return {"interval": "1m", "input_series": given, "alert_rule_test": [wanted]}


@pytest.mark.req("J-3")
def test_every_alert_has_a_scenario() -> None:
    assert FIRING.keys() == RULES.keys()


@pytest.mark.req("J-3")
@pytest.mark.parametrize("alert", FIRING)
def test_an_alert_fires_from_zero(alert: str, program: Path, tmp_path: Path) -> None:
    for series, moment, labels in FIRING[alert]:
        fires = [{"exp_labels": {**labels, **RULES[alert]["labels"]}}]
        run(program, tmp_path, [scenario(series, alert, moment, fires)])


@pytest.mark.req("J-3")
def test_alerts_end_and_do_not_fire_without_cause(program: Path, tmp_path: Path) -> None:
    run(program, tmp_path, [scenario(series, alert, at, []) for alert, (series, at) in QUIET.items()])


def test_promtool_reads_the_rules(program: Path) -> None:
    subprocess.run([program, "check", "rules", ALERTS], check=True, capture_output=True)
