"""Anchors of the audit log: a rewritten, cut or emptied chain is detected by them."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, select, text

from redrive import App, journal
from redrive.ledger import Ledger, audit
from redrive.ledger.db.tables import audit as entries
from redrive.ops.health.doctor import diagnose
from redrive.ops.metrics import LedgerGauges
from redrive.worker.maintenance import AuditAnchorTask

SOON = 60


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "anchors" / "audit.txt"
    monkeypatch.setenv("REDRIVE_WORKER_ANCHORS", str(found))
    return found


@pytest.fixture
def records() -> Iterator[list[journal.Record]]:
    heard: list[journal.Record] = []
    unsubscribe = journal.subscribe(heard.append, inline=True)
    yield heard
    unsubscribe()


def decide(ledger: Ledger, many: int = 3) -> None:
    for number in range(many):
        ledger.record(actor="ann", action="test.decide", because=f"reason {number}", what={})


def cut(ledger: Ledger) -> None:
    with ledger.begin() as connection:
        connection.execute(delete(entries).where(entries.c.number > 1))


def delete_entries(ledger: Ledger) -> None:
    with ledger.begin() as connection:
        connection.execute(delete(entries))


def rewritten(ledger: Ledger) -> None:
    """As an attacker who knows how the hashes are computed."""
    delete_entries(ledger)
    for number in range(5):
        ledger.record(actor="eve", action="test.decide", because=f"another reason {number}", what={})


def findings(ledger: Ledger) -> list[str]:
    return [one.says for one in diagnose(ledger).findings if one.name == "audit"]


@pytest.mark.req("O-5")
@pytest.mark.parametrize("harm", [cut, delete_entries, rewritten])
def test_the_doctor_detects_tampering_by_the_anchor_file(ledger: Ledger, file: Path, harm: Callable[[Ledger], None]) -> None:
    decide(ledger)
    AuditAnchorTask(ledger, str(file)).do(ledger.now())
    assert findings(ledger) == []
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    harm(ledger)
    with ledger.reading() as connection:
        assert audit.verify(connection).broken is None, "the chain alone does not show it"
    assert len(findings(ledger)) == 1


@pytest.mark.req("O-5")
def test_workers_emit_anchors(ledger: Ledger, file: Path, records: list[journal.Record]) -> None:
    decide(ledger)
    with ledger.reading() as connection:
        number, head = audit.head(connection)
    app = App(ledger)

    @app.command("noop")
    def noop() -> None: ...

    with app, app.worker():
        end = time.monotonic() + SOON
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.02)
    assert file.read_text().split()[0] == f"{number}:{head}"
    (record,) = [one for one in records if one.kind == "audit_anchor"]
    assert record.fields["anchor"] == f"{number}:{head}"
    assert [one.value for one in LedgerGauges(ledger)() if one.metric.name == "redrive_audit_entries"] == [3]


def test_an_anchor_is_written_once_for_each_head(ledger: Ledger, file: Path) -> None:
    anchoring = AuditAnchorTask(ledger, str(file))
    anchoring.do(ledger.now())
    assert not file.exists(), "nothing was decided yet"
    for _ in range(2):
        decide(ledger, 1)
        anchoring.do(ledger.now())
        anchoring.do(ledger.now())
    assert [line.partition(":")[0] for line in file.read_text().splitlines()] == ["1", "2"]
    with ledger.reading() as connection:
        assert connection.execute(select(text("count(*)")).select_from(entries)).scalar() == 2
