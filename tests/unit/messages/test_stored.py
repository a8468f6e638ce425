"""An event on its way into the ledger says the same as the job of each of its handlers."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as some

from redrive.ledger.limits import mapping
from redrive.messages.stored import Stored

LETTERS = some.characters(codec="utf-8", categories=("L", "N", "P"))
WORDS = some.text(LETTERS, min_size=1, max_size=40).filter(str.isprintable)
NOON = datetime(2026, 11, 16, 12, tzinfo=timezone.utc)


@given(WORDS, WORDS, some.dictionaries(WORDS | some.just("X-User-Id"), some.text(max_size=20), max_size=3))
def test_written_as_one_it_is_what_it_would_be_alone(source: str, event_id: str, headers: dict[str, str]) -> None:
    one = Stored(source, event_id, "paid", b"{}", headers, NOON, "1-0")
    found = one.arriving([("book", 5), ("mail", None)])
    alone = [one.job("book", 5), one.job("mail", None)]
    assert [(part.kind, part.key, part.max_attempts) for part in found.parts] == [
        (job.kind, job.key, job.max_attempts) for job in alone
    ]
    assert json.loads(found.carried or "{}") == alone[0].headers
    assert json.loads(found.ids or "{}") == alone[0].ids
    own = {"event_id": event_id, "event_type": "paid", "source": source}
    assert own | json.loads(found.more or "{}") == alone[0].ids
    assert not own.keys() & json.loads(found.more or "{}").keys()
    assert json.loads(found.headers or "{}") == headers
    assert (found.payload, found.handlers, found.at) == (b"{}", 2, NOON)


@given(some.dictionaries(some.text(max_size=9), some.text(max_size=9), max_size=4))
def test_mappings_are_the_json_that_they_were(value: dict[str, str]) -> None:
    assert mapping("headers", value) == (json.dumps(value, separators=(",", ":")) if value else None)


def test_a_key_that_would_be_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="key must not be longer than 1000 bytes"):
        Stored("shop", ":" * 400, "paid", b"", {}).arriving([("book", 5)])
