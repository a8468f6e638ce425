"""An incoming event and the jobs of its handlers agree."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as some

from redrive.ledger.validation import to_json
from redrive.messages.stored_event import StoredEvent

LETTERS = some.characters(codec="utf-8", categories=("L", "N", "P"))
TEXT = some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
WORDS = some.text(LETTERS, min_size=1, max_size=40).filter(str.isprintable)
NOON = datetime(2026, 11, 16, 12, tzinfo=timezone.utc)


@given(WORDS, WORDS, some.dictionaries(WORDS | some.just("X-User-Id"), TEXT, max_size=3))
def test_an_incoming_event_agrees_with_its_jobs(source: str, event_id: str, headers: dict[str, str]) -> None:
    event = StoredEvent(source, event_id, "paid", b"{}", headers, NOON, "1-0")
    incoming = event.incoming([("book", 5), ("mail", None)])
    jobs = [event.job("book", 5), event.job("mail", None)]
    assert [(part.kind, part.key, part.max_attempts) for part in incoming.jobs] == [
        (job.kind, job.key, job.max_attempts) for job in jobs
    ]
    assert json.loads(incoming.job_headers or "{}") == jobs[0].headers
    assert json.loads(incoming.ids or "{}") == jobs[0].ids
    own = {"event_id": event_id, "event_type": "paid", "source": source}
    assert own | json.loads(incoming.extra_ids or "{}") == jobs[0].ids
    assert not own.keys() & json.loads(incoming.extra_ids or "{}").keys()
    assert json.loads(incoming.headers or "{}") == headers
    assert (incoming.payload, incoming.handlers, incoming.at) == (b"{}", 2, NOON)


@given(some.dictionaries(some.text(max_size=9), some.text(max_size=9), max_size=4))
def test_mappings_are_stored_as_compact_json(value: dict[str, str]) -> None:
    assert to_json("headers", value) == (json.dumps(value, separators=(",", ":")) if value else None)


def test_a_key_that_is_too_long_is_rejected() -> None:
    with pytest.raises(ValueError, match="key must not be longer than 1000 bytes"):
        StoredEvent("shop", ":" * 400, "paid", b"", {}).incoming([("book", 5)])


@pytest.mark.parametrize("value", ["a\0b", "\udcff"])
def test_headers_that_postgres_cannot_read_are_rejected(value: str) -> None:
    with pytest.raises(ValueError, match="header 'note' has a NUL character or a lone surrogate"):
        StoredEvent("shop", "1", "paid", b"", {"note": value}).incoming([("book", 5)])
