"""The audit log: a chain of hashes, in which any change is detected."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest
import sqlalchemy
from sqlalchemy import delete, update

from redrive.ledger import Ledger
from redrive.ledger.db.tables import audit
from redrive.ops.operator import Operator


def decide(ledger: Ledger, count: int = 5) -> None:
    for number in range(1, count + 1):
        ledger.record(actor="ann", action="test", because=f"reason {number}", what={"number": number})


def change(ledger: Ledger, *statements: sqlalchemy.Executable) -> None:
    with ledger.begin() as tx:
        for statement in statements:
            tx.execute(statement)


def at(number: int) -> sqlalchemy.ColumnElement[bool]:
    return audit.c.number == number


SWAPPED = [
    update(audit).where(at(2)).values(number=99),
    update(audit).where(at(3)).values(number=2),
    update(audit).where(at(99)).values(number=3),
]


@pytest.mark.req("O-5")
@pytest.mark.parametrize(
    ("statements", "broken", "problem"),
    [
        ([update(audit).where(at(3)).values(because="another")], 3, "it was changed"),
        ([update(audit).where(at(1)).values(actor="bob")], 1, "it was changed"),
        ([update(audit).where(at(2)).values(at="2020-01-01T00:00:00.000000+00:00")], 2, "it was changed"),
        ([update(audit).where(at(4)).values(what="{}")], 4, "it was changed"),
        ([update(audit).where(at(4)).values(what="no JSON")], 4, "it was changed"),
        ([update(audit).where(at(5)).values(hash="0" * 64)], 5, "it was changed"),
        ([update(audit).where(at(2)).values(previous="0" * 64)], 2, "it was changed"),
        ([delete(audit).where(at(1))], 1, "it was removed"),
        ([delete(audit).where(at(3))], 3, "it was removed"),
        ([delete(audit).where(at(3)), update(audit).where(at(4)).values(number=3)], 3, "it was changed"),
        (SWAPPED, 2, "it was changed"),
        ([update(audit).where(at(5)).values(number=0)], 1, "it was inserted before the first entry"),
    ],
)
def test_tampering_with_the_audit_log_is_detected(
    ledger: Ledger, ann: Operator, statements: Sequence[sqlalchemy.Executable], broken: int, problem: str
) -> None:
    decide(ledger)
    assert ann.audit.verify().holds
    change(ledger, *statements)
    chain = ann.audit.verify()
    assert (chain.broken, chain.problem, chain.entries) == (broken, problem, broken - 1)
    assert len(ann.audit.find()) >= 4  # readable entries are listed


@pytest.mark.req("O-5")
def test_a_forged_entry_breaks_the_next_one(ledger: Ledger, ann: Operator) -> None:
    from redrive.ledger.audit import digest

    decide(ledger)
    entry = ledger.audit()[2]._replace(because="forged")
    change(ledger, update(audit).where(at(3)).values(because="forged", hash=digest(entry)))
    chain = ann.audit.verify()
    assert (chain.broken, chain.problem) == (4, "it does not follow from the entry before it, which was changed or replaced")


@pytest.mark.req("O-5")
def test_a_truncated_audit_log_is_detected_by_an_anchor(ledger: Ledger, ann: Operator) -> None:
    decide(ledger)
    anchor = ann.audit.verify().anchor
    assert anchor.startswith("5:")
    assert ann.audit.verify(anchor).holds
    change(ledger, delete(audit).where(audit.c.number >= 4))
    assert ann.audit.verify().holds  # the chain itself does not show that entries are missing
    cut = ann.audit.verify(anchor)
    assert (cut.broken, cut.problem) == (4, "it is missing: entries up to 5 were removed, or the anchor is of another ledger")
    decide(ledger, 3)
    anew = ann.audit.verify(anchor)
    rewritten = "it differs from the anchor: the log was rewritten, or the anchor is of another ledger"
    assert (anew.broken, anew.problem) == (5, rewritten)
    with pytest.raises(ValueError, match="an anchor must be a number and a hash"):
        ann.audit.verify("5")


def test_audit_entries_are_found_by_filter(ledger: Ledger, ann: Operator) -> None:
    ledger.record(actor="ann", action="dead.replay", because="one", what={})
    ledger.record(actor="bob", action="dead.discard", because="two", what={"password": "s3cret"})
    ledger.record(actor="bob", action="deadline", because="three", what={})
    assert [one.because for one in ann.audit.find()] == ["three", "two", "one"]
    assert [one.because for one in ann.audit.find(actor="bob")] == ["three", "two"]
    assert [one.because for one in ann.audit.find(action="dead")] == ["two", "one"]
    assert [one.because for one in ann.audit.find(action="dead.replay")] == ["one"]
    assert [one.because for one in ann.audit.find(limit=1)] == ["three"]
    now = datetime.now(timezone.utc)
    assert ann.audit.find(since=now + timedelta(hours=1)) == []
    assert len(ann.audit.find(since=now - timedelta(hours=1))) == 3
    assert ann.audit.find(until=now - timedelta(hours=1)) == []
    assert len(ann.audit.find(until=now + timedelta(hours=1))) == 3
    assert "s3cret" not in str(ann.audit.find())


def test_the_signature_of_an_error_is_not_redacted(ledger: Ledger, ann: Operator) -> None:
    ledger.record(actor="redrive", action="kind.park", because="x", what={"kind": "mail", "signature": "TimeoutError"})
    ledger.record(actor="redrive", action="kind.park", because="x", what={"kind": "mail", "signature": "E: token=s3cret"})
    secret, plain = ann.audit.find()
    assert (plain.what, "s3cret" in str(secret.what)) == ({"kind": "mail", "signature": "TimeoutError"}, False)


WRITER = """
import sys
from redrive.ledger import open_ledger
with open_ledger(sys.argv[1]) as ledger:
    for number in range(25):
        ledger.record(actor=sys.argv[2], action="race", because="at once", what={"number": number})
"""


@pytest.mark.req("O-5")
def test_several_processes_write_one_audit_chain(url: str, ledger: Ledger, ann: Operator) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, url, f"writer {each}"]) for each in range(4)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0, 0]
    chain = ann.audit.verify()
    assert (chain.holds, chain.entries) == (True, 100)
    by_writer = [entry.actor for entry in ledger.audit(limit=100)]
    assert {name: by_writer.count(name) for name in by_writer} == {f"writer {each}": 25 for each in range(4)}
