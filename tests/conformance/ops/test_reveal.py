"""Payloads with their secrets: shown for a reason, and recorded in the audit log."""

from __future__ import annotations

import pytest

from redrive.errors import NotAllowed
from redrive.ledger import Ledger, NewJob
from redrive.ops.operator import Operator
from tests.conformance.ops.world import SECRET, die


@pytest.mark.req("J-4")
def test_a_revealed_payload_needs_a_reason_and_is_audited(ledger: Ledger, ann: Operator) -> None:
    (letter,) = die(ledger, "a")
    found = ann.dead_letters.get(letter)
    assert found is not None
    assert SECRET not in str(found)
    with pytest.raises(ValueError, match="must say why"):
        ann.dead_letters.reveal(letter, because=" ")
    assert SECRET in ann.dead_letters.reveal(letter, because="the customer asks").text
    assert SECRET in ann.jobs.reveal(found.jobs[0].id, because="again").text
    with pytest.raises(NotAllowed, match="job 999 not found"):
        ann.jobs.reveal(999, because="x")
    entries = [(entry.action, entry.because, dict(entry.what)) for entry in ledger.audit()]
    assert [(action, because) for action, because, _ in entries] == [
        ("payload.reveal", "the customer asks"),
        ("payload.reveal", "again"),
    ]
    assert SECRET not in str(entries)


def test_a_payload_that_is_not_text_is_revealed_in_hexadecimal(ledger: Ledger, ann: Operator) -> None:
    made = ledger.submit(NewJob("odd", "a", b"\xff\x00\x01"))
    assert ann.jobs.reveal(made.id, because="x").text == "ff 00 01"
