"""Tags of jobs: written with the job, copied by a replay, deleted with its content."""

from __future__ import annotations

import pytest
import sqlalchemy

from redrive.core.context import MAX_ID_CHARS, shorten_id
from redrive.ledger import Ledger, NewJob
from tests.conformance.ledger.world import KIND, claim, pass_time, rows

TAGS = "SELECT job_id, name, value FROM redrive_tag ORDER BY job_id, name, value"


@pytest.mark.req("Q-1")
def test_tags_are_stored_with_the_job(ledger: Ledger) -> None:
    first = ledger.submit(NewJob(KIND, "a", tags={"order_id": "17", "user": "ann"}))
    again = ledger.submit(NewJob(KIND, "a", tags={"order_id": "18"}))
    ledger.submit(NewJob(KIND, "plain"))
    many = ledger.submit_many([NewJob(KIND, "b", tags={"order_id": "19"}), NewJob(KIND, "c"), NewJob(KIND, "a")])
    assert (first.id, first.created) == (again.id, True)
    expected = [(first.id, "@user", "ann"), (first.id, "order_id", "17"), (many[0].id, "order_id", "19")]
    assert list(map(tuple, rows(ledger, TAGS))) == expected


@pytest.mark.req("Q-1")
def test_correlation_ids_are_tags(ledger: Ledger) -> None:
    ids = {"request_id": "r-1", "trace_id": "r-1", "user_id": "ann", "source": "shop", "traceparent": "00-1"}
    job = ledger.submit(NewJob(KIND, "a", ids=ids))
    assert list(map(tuple, rows(ledger, TAGS))) == [(job.id, "@id", "r-1"), (job.id, "@user", "ann")]


def test_a_long_or_unusual_value_is_stored_shortened(ledger: Ledger) -> None:
    value = "x" * 10_000
    ledger.submit(NewJob(KIND, "a", tags={"long": value, "strange": "a\x00\ud800"}))
    stored = {name: text for _id, name, text in rows(ledger, TAGS)}
    assert stored["long"] == shorten_id(value)
    assert len(stored["long"]) <= MAX_ID_CHARS
    assert stored["strange"] == "a\ufffd?"


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({"@id": "x"}, "invalid name '@id'"),
        ({"a b": "x"}, "invalid name 'a b'"),
        ({"a": 1}, "text to text: 'a' is int"),
        ({f"t{number}": "x" for number in range(21)}, "at most 20"),
    ],
)
def test_invalid_tags_are_rejected(ledger: Ledger, tags: dict[str, str], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ledger.submit(NewJob(KIND, "a", tags=tags))
    assert ledger.counts() == {}


@pytest.mark.req("Q-1")
def test_tags_are_part_of_the_callers_transaction(url: str, shared: Ledger) -> None:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        shared.submit(NewJob(KIND, "a", tags={"order_id": "17"}), tx=connection)
        connection.rollback()
        job = shared.submit(NewJob(KIND, "a", tags={"order_id": "18"}), tx=connection)
        connection.commit()
    engine.dispose()
    assert list(map(tuple, rows(shared, TAGS))) == [(job.id, "order_id", "18")]


@pytest.mark.req("Q-1")
def test_a_replay_has_the_tags_of_its_job(ledger: Ledger) -> None:
    job = ledger.submit(NewJob(KIND, "a", tags={"order_id": "17"}))
    ledger.settle(claim(ledger)[0].dead("attempts", error="boom", signature="Boom"))
    done = ledger.replay([1], actor="ann", because="again").done
    assert list(map(tuple, rows(ledger, TAGS))) == [(job.id, "order_id", "17"), (done[1], "order_id", "17")]


@pytest.mark.req("Q-1")
def test_pruning_deletes_tags(ledger: Ledger) -> None:
    ledger.submit_many([NewJob(KIND, key, tags={"order_id": key}) for key in "ab"])
    leases = claim(ledger)
    ledger.settle([lease.done() for lease in leases if lease.key == "a"])
    pass_time(ledger, 100)
    assert ledger.prune(50) == 1
    assert [row[2] for row in rows(ledger, TAGS)] == ["b"]


@pytest.mark.req("Q-1")
def test_a_failed_attempt_writes_the_signature_of_its_error(ledger: Ledger) -> None:
    ledger.submit_many([NewJob(KIND, key) for key in "abc"])
    by_key = {lease.key: lease for lease in claim(ledger)}
    ledger.settle(
        [
            by_key["a"].again(5, error="boom 1")._replace(signature="Boom: #"),
            by_key["b"].dead("attempts", error="boom 2", signature="Boom: #"),
            by_key["c"].done(),
        ]
    )
    stored = dict(map(tuple, rows(ledger, "SELECT key, signature FROM redrive_job")))
    assert stored == {"a": "Boom: #", "b": "Boom: #", "c": None}


@pytest.mark.req("Q-1")
def test_a_lost_attempt_writes_its_reason_as_the_signature(ledger: Ledger) -> None:
    ledger.submit(NewJob(KIND, "a"))
    claim(ledger)
    pass_time(ledger, 1000)
    assert len(ledger.reap()) == 1
    assert list(map(tuple, rows(ledger, "SELECT signature FROM redrive_job"))) == [("lost_worker",)]
