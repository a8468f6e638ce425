"""What the console shows and asks for, on both databases: groups, plans that can be told apart, what has changed, reveals."""

from __future__ import annotations

import pytest

from redrive.errors import Drift, NotAllowed
from redrive.ledger import Ledger, NewJob
from redrive.ops import DeadLetterFilter
from redrive.ops.operator import Operator
from tests.conformance.ops.world import SECRET, die


@pytest.mark.req("O-2")
def test_what_is_done_is_what_was_looked_at(ledger: Ledger, ann: Operator) -> None:
    first = die(ledger, "a", "b", "c")
    seen = ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync", upto=first[-1]))
    assert (seen.ids, seen.errors) == (tuple(first), {"TimeoutError": 3})
    later = die(ledger, "d")
    same = ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync", upto=first[-1]))
    assert same.digest == seen.digest, "what died since is not meant"
    assert ann.dead_letters.discard(DeadLetterFilter(kind="crm.sync", upto=first[-1])).digest != seen.digest
    ledger.discard(first[:1], actor="ben", because="faster")
    with pytest.raises(Drift, match="the plan has changed"):
        ann.begin(
            ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync", upto=first[-1])), because="it is back", seen=seen.digest
        )
    assert [one.id for one in ann.dead_letters.find()] == [*later, *first[:0:-1]], "nothing was done"


def test_lists_go_on_and_groups_are_by_cause(ledger: Ledger, ann: Operator) -> None:
    timeouts = die(ledger, "a", "b", "c")
    rejected = die(ledger, "d", kind="mail.send", reason="permanent", error="Refused: 422", signature=None)
    assert [one.id for one in ann.dead_letters.find(DeadLetterFilter(limit=2))] == [*rejected, timeouts[-1]]
    assert [one.id for one in ann.dead_letters.find(before=timeouts[-1])] == timeouts[1::-1]
    found = [(group.kind, group.signature, group.count, group.letter_id) for group in ann.dead_letters.groups()]
    assert found == [("crm.sync", "TimeoutError", 3, timeouts[-1]), ("mail.send", "permanent", 1, rejected[0])]
    assert {one.kind for one in ann.jobs.find(state="dlq", limit=3)} == {"crm.sync", "mail.send"}


@pytest.mark.req("J-4")
def test_a_payload_with_its_secrets_is_shown_for_a_reason(ledger: Ledger, ann: Operator) -> None:
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


def test_bytes_that_are_no_text_are_shown_in_numbers(ledger: Ledger, ann: Operator) -> None:
    made = ledger.submit(NewJob("odd", "a", b"\xff\x00\x01"))
    assert ann.jobs.reveal(made.id, because="x").text == "ff 00 01"


def test_the_pulse_is_another_whenever_anything_has_changed(ledger: Ledger, ann: Operator) -> None:
    seen = [ann.overview.change_token()]
    assert ann.overview.change_token() == seen[0]
    (letter,) = die(ledger, "a")
    seen.append(ann.overview.change_token())
    ann.begin(ann.dead_letters.replay(DeadLetterFilter(ids=(letter,))), because="x")
    seen.append(ann.overview.change_token())
    ledger.maintenance.heartbeat("w1", {})
    seen.append(ann.overview.change_token())
    assert len(set(seen)) == 4
