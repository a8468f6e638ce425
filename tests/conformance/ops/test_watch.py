"""Watchers on both databases: each change is sent once, over restarts, several watchers, crashes and outages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.db.schema import migrate
from redrive.ops import DeadLetterFilter
from redrive.ops.alerts import changes
from redrive.ops.alerts.state import LEASE, LedgerState
from redrive.ops.alerts.watch import Watcher, WatchOptions, WatchReport
from redrive.ops.operator import Operator
from redrive.testing import FaultServer, instant
from tests.conformance.ledger.world import pass_time
from tests.conformance.ops.test_roles import ROLES, SQL, under
from tests.conformance.ops.world import die

pytestmark = pytest.mark.req("X-7")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    """The target of all alerts in these tests."""
    with FaultServer(200) as started:
        monkeypatch.setenv("REDRIVE_ALERTS_WEBHOOK", f"{started.url}/hook")
        yield started


def check(source: str, **options: Any) -> WatchReport:
    """Check once in a new watcher, as after a restart."""
    with closing(Watcher(source, WatchOptions(**options))) as watcher, instant():
        return watcher.check()


def read_received(server: FaultServer) -> list[list[tuple[str, str]]]:
    """Change and id of the alerts of each message."""
    bodies = [json.loads(request.body) for request in server.requests]
    return [[(alert["change"], alert["id"]) for alert in body["alerts"]] for body in bodies]


def deliveries(report: WatchReport) -> list[str]:
    return [target.delivery for target in report.targets]


def test_a_finding_is_sent_once_over_restarts(
    url: str, ledger: Ledger, ann: Operator, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deliveries(check(url)) == ["unchanged"]
    letters = die(ledger, "a")
    assert deliveries(check(url)) == ["sent"]
    assert [deliveries(check(url)) for _ in range(2)] == [["unchanged"]] * 2
    ledger.submit(NewJob("mail", "b"))
    pass_time(ledger, 300)
    assert deliveries(check(url)) == ["sent"]
    monkeypatch.setattr(changes, "RESOLVE_AFTER", timedelta(0))
    ledger.maintenance.heartbeat("w1")
    ledger.claim({"mail": 1}, worker="w1")
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=tuple(letters))), because="a test order")
    assert deliveries(check(url)) == ["unchanged"]
    assert deliveries(check(url)) == ["sent"]
    assert read_received(server) == [
        [("new", "dead letters pending")],
        [("new", "no workers")],
        [("resolved", "no workers"), ("resolved", "dead letters pending")],
    ]
    assert deliveries(check(url)) == ["unchanged"]


def test_several_watchers_send_a_finding_once(url: str, ledger: Ledger, server: FaultServer) -> None:
    die(ledger, "a")
    start = threading.Barrier(4)
    reports: list[WatchReport] = []

    def watch() -> None:
        with closing(Watcher(url, WatchOptions())) as watcher:
            start.wait()
            reports.append(watcher.check())

    threads = [threading.Thread(target=watch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_received(server) == [[("new", "dead letters pending")]]
    assert sorted(delivery for report in reports for delivery in deliveries(report)).count("sent") == 1
    assert deliveries(check(url)) == ["unchanged"]


def test_a_watcher_that_died_while_it_sent_is_replaced(url: str, ledger: Ledger, ann: Operator, server: FaultServer) -> None:
    die(ledger, "a")
    with closing(Watcher(url, WatchOptions())) as watcher:
        state = LedgerState(ledger, watcher._channels[0].sender.target.target_id)
    stored = state.claim(state.read())
    assert stored is not None
    assert deliveries(check(url)) == ["busy"]
    assert server.count == 0
    pass_time(ledger, LEASE.total_seconds() * 3)
    assert [found.name for found in ann.health.check().findings] == ["dead letters pending"]
    assert deliveries(check(url)) == ["sent"]
    assert f":alert:{stored.revision}-" in server.requests[0].headers["idempotency-key"]
    (record,) = ann.keys.find(domain="redrive")
    ann.keys.release(record.key, because="send all alerts again")
    assert deliveries(check(url)) == ["sent"]
    assert server.requests[0].headers["idempotency-key"] != server.requests[1].headers["idempotency-key"]


def test_a_state_that_was_read_before_another_watcher_saved_cannot_be_claimed(ledger: Ledger) -> None:
    state = LedgerState(ledger, "webhook-12345678")
    first = state.claim(state.read())
    assert first is not None
    late = state.read()
    assert state.claim(late) is None
    state.save(first)
    assert state.claim(late) is None
    assert state.claim(state.read()) is not None


def test_an_alert_that_was_not_delivered_is_sent_at_the_next_check(url: str, ledger: Ledger, server: FaultServer) -> None:
    die(ledger, "a")
    server.script(503)
    report = check(url)
    assert deliveries(report) == ["failed"]
    assert "not delivered after 3 attempts (HTTP 503)" in (report.targets[0].problem or "")
    server.script(200)
    assert deliveries(check(url)) == ["sent"]
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert (len(keys), len(set(keys))) == (4, 1)


def test_an_open_finding_is_repeated(url: str, ledger: Ledger, server: FaultServer) -> None:
    die(ledger, "a")
    check(url)
    check(url, repeat=1e-6)
    assert read_received(server) == [[("new", "dead letters pending")], [("repeated", "dead letters pending")]]


def test_warnings_can_be_left_out(url: str, ledger: Ledger, server: FaultServer) -> None:
    die(ledger, "a")
    assert deliveries(check(url, severity="critical")) == ["unchanged"]
    ledger.submit(NewJob("mail", "b"))
    pass_time(ledger, 300)
    assert deliveries(check(url, severity="critical")) == ["sent"]
    assert read_received(server) == [[("new", "no workers")]]


def test_a_ledger_that_is_away_is_reported_once_and_resolved(
    url: str, ledger: Ledger, server: FaultServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(changes, "RESOLVE_AFTER", timedelta(0))
    die(ledger, "a")
    away = "postgresql://app:hunter2-s3cret@127.0.0.1:1/shop" if "postgres" in url else f"sqlite:///{tmp_path}/no.db"
    monkeypatch.setenv("REDRIVE_LEDGER", away)
    with closing(Watcher(None, WatchOptions())) as watcher, instant():
        reports = [watcher.check(), watcher.check()]
        assert [deliveries(report) for report in reports] == [["sent"], ["unchanged"]]
        assert not any(report.is_ledger_checked for report in reports)
        monkeypatch.setenv("REDRIVE_LEDGER", url)
        assert deliveries(watcher.check()) == ["sent"]
        assert deliveries(watcher.check()) == ["sent"]
        assert deliveries(watcher.check()) == ["unchanged"]
    assert read_received(server) == [
        [("new", "check failed")],
        [("new", "dead letters pending")],
        [("resolved", "check failed")],
    ]
    text = json.loads(server.requests[0].body)["alerts"][0]["text"]
    assert text.startswith("Ledger: the check failed (")
    assert b"hunter2" not in b"".join(request.body for request in server.requests)


def test_a_schema_of_another_version_is_reported(server: FaultServer, tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/old.db"
    with open_ledger(source, migrate=True) as ledger, ledger.connections.write.use() as session:
        migrate(session, "0001", shown="old")
    assert check(source).is_ledger_checked is False
    (alert,) = json.loads(server.requests[0].body)["alerts"]
    assert (alert["id"], alert["severity"], alert["fix"]) == ("schema", "critical", f"redrive ledger migrate --ledger {source}")


def test_the_console_role_may_watch(postgres_db: str, server: FaultServer) -> None:
    with open_ledger(postgres_db, migrate=True) as ledger:
        die(ledger, "a")
    with psycopg.connect(postgres_db, autocommit=True) as connection:
        for role in ROLES:
            made = f"BEGIN CREATE ROLE {role} NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END"
            connection.execute(f"DO $$ {made} $$".encode())
        connection.execute(SQL.read_bytes())
    try:
        assert deliveries(check(under(postgres_db, "redrive_console"))) == ["sent"]
        assert read_received(server) == [[("new", "dead letters pending")]]
        assert deliveries(check(under(postgres_db, "redrive_worker"))) == ["unchanged"]
    finally:
        with psycopg.connect(postgres_db, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {', '.join(ROLES)}".encode())
