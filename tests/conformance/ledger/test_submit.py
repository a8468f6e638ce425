"""Submit: once for a key, in batches, all or none. Invalid jobs are rejected and change nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from redrive import correlate
from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.validation import MAX_MAPPING_BYTES
from tests.conformance.ledger.world import KIND, claim, keys, new, pass_time, tally

EAST, WEST = (timezone(timedelta(hours=hours)) for hours in (12, -12))


@pytest.mark.req("L-1", "L-2")
def test_a_job_is_submitted_once_for_its_key(ledger: Ledger) -> None:
    first = ledger.submit(NewJob(KIND, "a", b"one"))
    again = ledger.submit(NewJob(KIND, "a", b"two"))
    assert (first.created, again.created) == (True, False)
    assert first.id == again.id
    job = ledger.get(first.id)
    assert job is not None
    assert (job.payload, job.state, job.shown) == (b"one", "ready", "queued")
    assert tally(ledger)[:2] == (1, 1)


@pytest.mark.req("L-2")
def test_a_done_key_stays_done(ledger: Ledger) -> None:
    ledger.submit(*new("a"))
    ledger.settle(claim(ledger)[0].done(b"answer"))
    again = ledger.submit(*new("a"))
    assert (again.created, again.state) == (False, "done")
    assert claim(ledger) == []


def test_the_same_key_of_another_type_is_another_job(ledger: Ledger) -> None:
    assert ledger.submit(NewJob("one", "a")).created
    assert ledger.submit(NewJob("two", "a")).created


@pytest.mark.req("L-6")
def test_a_batch_distinguishes_new_and_known_jobs_in_order(ledger: Ledger) -> None:
    known = ledger.submit(*new("b"))
    found = ledger.submit_many(new("c", "b", "a", "c"))
    assert [(one.key, one.created) for one in found] == [("c", True), ("b", False), ("a", True), ("c", False)]
    assert found[1].id == known.id
    assert found[0].id == found[3].id
    assert tally(ledger).submitted == 3
    for one in found:
        job = ledger.get(one.id)
        assert job is not None
        assert job.key == one.key


def test_a_large_batch_keeps_ids_and_keys_together(ledger: Ledger) -> None:
    found = ledger.submit_many(new(*(f"k{number}" for number in range(500))))
    assert len({one.id for one in found}) == 500
    for one in found[::97]:
        job = ledger.get(one.id)
        assert job is not None
        assert (job.key, job.payload) == (one.key, one.key.encode())


def test_an_empty_batch_does_nothing(ledger: Ledger) -> None:
    assert ledger.submit_many([]) == []


def test_a_lease_has_the_fields_of_its_job(ledger: Ledger) -> None:
    deadline = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))
    ledger.submit(
        NewJob(
            KIND, "ключ:ü", bytes(range(256)), max_attempts=7, deadline=deadline, ids={"trace_id": "t1"}, headers={"h": "ö"},
            request_hash=b"\x00\xff", version=3,
        )
    )  # fmt: skip
    lease = claim(ledger)[0]
    assert (lease.key, lease.payload, lease.max_attempts, lease.version) == ("ключ:ü", bytes(range(256)), 7, 3)
    assert (lease.ids, lease.headers) == ({"trace_id": "t1"}, {"h": "ö"})
    assert lease.deadline == deadline
    assert lease.deadline is not None
    assert lease.deadline.tzinfo is timezone.utc
    job = ledger.get(lease.job_id)
    assert job is not None
    assert (job.request_hash, job.ids, job.headers, job.deadline) == (b"\x00\xff", lease.ids, lease.headers, deadline)
    again = ledger.submit(NewJob(KIND, "ключ:ü", request_hash=b"other"))
    assert again.request_hash == b"\x00\xff"


@pytest.mark.req("L-9")
def test_timestamps_are_aware_and_from_the_database_clock(ledger: Ledger) -> None:
    before = ledger.now()
    submitted = ledger.submit(*new("a"))
    job = ledger.get(submitted.id)
    assert job is not None
    assert before <= job.created_at <= ledger.now()
    assert job.created_at.tzinfo is timezone.utc
    assert job.due_at == job.created_at


def test_a_delayed_job_is_due_later(ledger: Ledger) -> None:
    ledger.submit_many([*new("later", delay=30.0), *new("dated", due=ledger.now() + timedelta(seconds=60)), *new("now")])
    assert keys(claim(ledger)) == {"now"}
    pass_time(ledger, 31)
    assert keys(claim(ledger)) == {"later"}
    pass_time(ledger, 30)
    assert keys(claim(ledger)) == {"dated"}


@pytest.mark.req("L-11")
def test_headers_and_ids_beside_a_payload_are_bounded(ledger: Ledger) -> None:
    fits = {"h": "x" * (MAX_MAPPING_BYTES - 1)}
    ledger.submit(NewJob(KIND, "fits", b"", headers=fits, ids=fits))
    for beside in (
        {"h": "x" * MAX_MAPPING_BYTES},
        {"h": "ü" * (MAX_MAPPING_BYTES // 2)},
        {f"h{n}": "x" for n in range(MAX_MAPPING_BYTES)},
    ):
        with pytest.raises(ValueError, match=r"headers have \d+ bytes; the ledger takes at most 65536"):
            ledger.submit(NewJob(KIND, "large", b"", headers=beside))
        with pytest.raises(ValueError, match=r"ids have \d+ bytes; the ledger takes at most 65536"):
            ledger.submit(NewJob(KIND, "large", b"", ids=beside))
    with correlate(request_id="r" * 50_000_000):
        ledger.submit(NewJob(KIND, "long id", b""))
    assert {lease.key: len(lease.ids["request_id"]) for lease in claim(ledger) if lease.key == "long id"} == {"long id": 256}
    assert tally(ledger).submitted == 2


@pytest.mark.req("L-11")
def test_a_payload_above_the_limit_is_rejected(ledger: Ledger) -> None:
    ledger.max_payload = 1000
    ledger.submit(NewJob(KIND, "fits", bytes(1000)))
    with pytest.raises(ValueError, match="payload has 1001 bytes; the ledger takes at most 1000"):
        ledger.submit_many([*new("beside"), NewJob(KIND, "a", bytes(1001))])
    lease = claim(ledger)[0]
    with pytest.raises(ValueError, match="result has 1001 bytes"):
        ledger.settle(lease.done(bytes(1001)))
    ledger.settle(lease.done(bytes(1000)))
    assert tally(ledger).submitted == 1


@pytest.mark.parametrize(
    ("job", "error"),
    [
        ((KIND, ""), "key must be printable and not empty"),
        ((KIND, "a\x00b"), "key must be printable"),
        ((KIND, "a\ud800"), "key must be printable"),
        ((KIND, "ä" * 501), "key must not be longer than 1000 bytes"),
        (("", "a"), "kind must be printable"),
        (("k" * 201, "a"), "kind must not be longer than 200 bytes"),
        ((KIND, "a", "text"), "payload must be bytes, not str"),
        ((KIND, "a", b"", 3), "priority must be a whole number"),
        ((KIND, "a", b"", True), "priority must be a whole number"),
        ((KIND, "a", b"", 0, -1.0), "delay must not be negative"),
        ((KIND, "a", b"", 0, float("nan")), "delay must be a finite number"),
        ((KIND, "a", b"", 0, 0.0, datetime(2030, 1, 1)), "a datetime needs a time zone"),  # noqa: DTZ001
        ((KIND, "a", b"", 0, 4e9), "delay must be less than a century"),
        ((KIND, "a", b"", 0, 0.0, datetime(9999, 12, 31, 23, tzinfo=WEST)), "this time does not exist in UTC"),
        ((KIND, "a", b"", 0, 0.0, datetime(1, 1, 1, tzinfo=EAST)), "this time does not exist in UTC"),
        ((KIND, "a", b"", 0, 0.0, None, 0), "max_attempts must be at least 1"),
        ((KIND, "a", b"", 0, 0.0, None, 1, 1e300), "keep must be less than a century"),
        ((KIND, 7), "key must be text, not int"),
    ],
)
def test_a_job_that_cannot_be_stored_is_rejected_and_changes_nothing(job: tuple[Any, ...], error: str) -> None:
    with open_ledger("sqlite://") as ledger:
        with pytest.raises((TypeError, ValueError), match=error):
            ledger.submit_many([*new("good"), NewJob(*job)])
        assert ledger.counts() == {}


def test_correlation_ids_must_be_text(ledger: Ledger) -> None:
    ids: Any = {"a": 1}
    with pytest.raises(TypeError, match="ids must be a mapping of text to text"):
        ledger.submit_many([*new("a"), NewJob(KIND, "b", ids=ids)])
    assert ledger.counts() == {}


def test_the_longest_names_fit(ledger: Ledger) -> None:
    ledger.submit(NewJob("k" * 200, "ä" * 500))
    assert len(claim(ledger, kind="k" * 200)) == 1
