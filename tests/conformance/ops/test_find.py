"""Jobs found by a filter, on both databases."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import partial

import pytest

from redrive.core.classification.signature import signature_of
from redrive.ledger import Ledger, NewJob
from redrive.ledger.jobs.user_mentions import escape
from redrive.ledger.queries import job_search
from redrive.ops import JobFilter
from redrive.ops.operator import Operator
from tests.conformance.ledger.world import pass_time
from tests.conformance.ops.world import die


def find_keys(ann: Operator, **fields: object) -> list[str]:
    return [line.key for line in ann.jobs.find(JobFilter(**fields))]  # type: ignore[arg-type]


@pytest.mark.req("Q-1")
def test_jobs_are_found_by_each_field(ledger: Ledger, ann: Operator) -> None:
    (old,) = ledger.submit_many([NewJob("crm.sync", "shop:ann:o-1:sync:v1")])
    pass_time(ledger, 7200)
    ledger.submit_many([NewJob("crm.sync", "shop:ann:o-2:sync:v1"), NewJob("mail", "shop:bob:o-2:mail:v1")])
    ledger.submit_many([NewJob("mail", "100%_off")])
    ledger.claim({"mail": 1}, worker="w7")
    hour_ago = datetime.now(timezone.utc) - timedelta(hours=1)
    ann_keys = ["shop:ann:o-2:sync:v1", "shop:ann:o-1:sync:v1"]
    assert find_keys(ann, ids=(old.id,)) == ["shop:ann:o-1:sync:v1"]
    assert find_keys(ann, ids=(99,)) == []
    assert find_keys(ann, key="100%_off") == ["100%_off"]
    assert sorted(find_keys(ann, key_prefix="shop:ann:")) == sorted(ann_keys)
    assert find_keys(ann, key_prefix="100%_") == ["100%_off"]
    assert find_keys(ann, key_prefix="1%") == []
    assert find_keys(ann, kind="crm.sync", since=hour_ago) == ann_keys[:1]
    assert find_keys(ann, until=hour_ago) == ann_keys[1:]
    assert find_keys(ann, worker="w7") == ["shop:bob:o-2:mail:v1"]
    assert ann.jobs.count() == 4
    assert ann.jobs.count(JobFilter(kind="mail", state="queued")) == 1
    assert ann.jobs.count(most=3) == 3


@pytest.mark.req("Q-1")
def test_a_replaced_job_is_found_only_by_its_id(ledger: Ledger, ann: Operator) -> None:
    (number,) = die(ledger, "a")
    first = ledger.find("crm.sync", "a")
    assert first is not None
    ledger.replay([number], actor="ann", because="again")
    assert [line.replay_of for line in ann.jobs.find(JobFilter(key="a"))] == [first.id]
    assert [line.id for line in ann.jobs.find(JobFilter(ids=(first.id,)))] == [first.id]


def test_a_filter_lists_its_conditions() -> None:
    assert JobFilter().selects_all
    assert JobFilter(ids=(3,), kind="mail").as_dict() == {"ids": (3,), "kind": "mail"}
    with pytest.raises(ValueError, match="needs a time zone"):
        JobFilter(since=datetime(2026, 1, 1))  # noqa: DTZ001  # the mistake


def fail(ledger: Ledger, key: str, *, kind: str = "crm.sync", error: str, worker: str = "w1") -> None:
    """A job whose attempt failed, and that is retried later."""
    ledger.submit(NewJob(kind, key))
    (lease,) = ledger.claim({kind: 1}, worker=worker)
    name, _, message = error.partition(": ")
    ledger.settle(lease.again(3600, error=error)._replace(signature=signature_of(name, message)))


@pytest.mark.req("Q-1")
def test_jobs_are_found_by_user_tag_and_correlation_id(ledger: Ledger, ann: Operator) -> None:
    ledger.submit_many(
        [
            NewJob("crm.sync", "shop:ann:o-1:sync:v1", ids={"request_id": "r-1"}),
            NewJob("mail", "shop:a%3Ab:o-1:mail:v1", tags={"order_id": "17", "user": "ann"}),
            NewJob("mail", "shop::o-2:mail:v1", ids={"user_id": "ann", "request_id": "r-2"}),
            NewJob("mail", "ann", tags={"order_id": "18"}),
        ]
    )
    assert sorted(find_keys(ann, user="ann")) == [
        "shop::o-2:mail:v1",
        "shop:a%3Ab:o-1:mail:v1",
        "shop:ann:o-1:sync:v1",
    ]
    assert find_keys(ann, user="a:b") == ["shop:a%3Ab:o-1:mail:v1"]
    assert find_keys(ann, user="ann", kind="crm.sync") == ["shop:ann:o-1:sync:v1"]
    assert find_keys(ann, correlation_id="r-1") == ["shop:ann:o-1:sync:v1"]
    assert find_keys(ann, tags={"order_id": "17"}) == ["shop:a%3Ab:o-1:mail:v1"]
    assert find_keys(ann, tags={"order_id": "17", "user": "bob"}) == []
    assert sorted(find_keys(ann, text="ann")) == sorted([*find_keys(ann, user="ann"), "ann"])


@pytest.mark.req("Q-1")
def test_the_source_of_an_event_is_not_a_user(ledger: Ledger, ann: Operator) -> None:
    command = "event:orders:o-1:notify:v1"
    ledger.submit_many(
        [
            NewJob("mail", "event:orders:7-0:mail:v1"),
            NewJob("read:orders", "event:orders:7-1:read:v1"),
            NewJob("mail", command),
            NewJob("crm.sync", command),
        ]
    )
    assert find_keys(ann, user="orders") == [command, command]


@pytest.mark.req("Q-1")
def test_a_user_is_found_in_every_domain_and_job_type(ledger: Ledger, ann: Operator) -> None:
    expected = [f"{domain}:ann:o-{n}:sync:v1" for domain in ("a", "a-b", "ab", "shop", "é") for n in range(2)]
    others = [f"{domain}:{user}:o-1:sync:v1" for domain in ("a", "a-b", "b", "shop") for user in ("an", "ann-2", "bob", "a%3Ab")]
    raw = ["a", "a-b", "ann", "shop", "shop:ann", "shop:ann:o-1", *(f"0{n}" for n in range(5))]
    ledger.submit_many([NewJob(kind, key) for kind in ("crm.sync", "mail") for key in (*expected, *others, *raw)])
    assert sorted(find_keys(ann, user="ann")) == sorted(expected * 2)
    assert sorted(find_keys(ann, user="ann", kind="mail")) == sorted(expected)
    assert find_keys(ann, user="eve") == []


@pytest.mark.req("Q-1")
@pytest.mark.parametrize("user", ["a.b*c", "(x) [y]", "a+b@shop.de", "^a|b$", "a\\d?", "a_b%c", "O'Neil", "é-{2}", "a:b#&~"])
def test_any_text_may_be_a_user(ledger: Ledger, ann: Operator, user: str) -> None:
    key = f"shop:{escape(user)}:o-1:sync:v1"
    ledger.submit_many(
        [NewJob("crm.sync", each) for each in (key, "shop:aXb:o-1:sync:v1", "shop:a1:o-1:sync:v1", "shop:b:o-1:sync:v1")]
    )
    assert find_keys(ann, user=user) == [key]


@pytest.mark.req("Q-1")
def test_the_newest_jobs_of_a_frequent_user_are_found(ledger: Ledger, ann: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are read in their order, so with more of them than a search reads, the newest could be missing."""
    monkeypatch.setattr(job_search, "MAX_CANDIDATES", 5)
    monkeypatch.setattr(job_search, "find_candidates", partial(job_search.find_candidates, most=5))
    for number in range(10, 30):
        ledger.submit(NewJob("mail", f"shop:ann:o-{number}:mail:v1"))
    assert find_keys(ann, user="ann")[:3] == [f"shop:ann:o-{number}:mail:v1" for number in (29, 28, 27)]


@pytest.mark.req("Q-1")
def test_a_user_is_found_among_more_domains_than_are_searched(
    ledger: Ledger, ann: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_search, "MAX_DOMAINS", 3)
    for domain in "abcdef":
        ledger.submit(NewJob("mail", f"{domain}:ann:o-1:mail:v1"))
    assert find_keys(ann, user="ann") == [f"{domain}:ann:o-1:mail:v1" for domain in "fedcba"]


@pytest.mark.req("Q-1")
def test_jobs_are_found_by_error_and_worker(ledger: Ledger, ann: Operator) -> None:
    fail(ledger, "slow", error="TimeoutError: order 17 timed out", worker="w2")
    fail(ledger, "slow too", error="TimeoutError: order 18 timed out")
    die(ledger, "dead", kind="mail", error="ConnectionError: refused", signature="ConnectionError: refused")
    ledger.submit(NewJob("mail", "fresh"))
    assert find_keys(ann, error="timed OUT") == ["slow too", "slow"]
    assert find_keys(ann, error="order 17") == ["slow"]
    assert find_keys(ann, error="refused") == ["dead"]
    assert find_keys(ann, error="refused", kind="crm.sync") == []
    assert find_keys(ann, error="100%") == []
    assert find_keys(ann, worker="w2") == ["slow"]
    assert sorted(find_keys(ann, worker="w1")) == ["dead", "slow too"]
    assert find_keys(ann, worker="w1", state="dlq") == ["dead"]


@pytest.mark.req("Q-1")
def test_one_search_finds_jobs_and_dead_letters(ledger: Ledger, ann: Operator) -> None:
    ledger.submit(NewJob("crm.sync", "shop:ann:o-17:sync:v1", tags={"order_id": "17"}))
    (lease,) = ledger.claim({"crm.sync": 1}, worker="w1")
    ledger.settle(lease.dead("attempts", error="TimeoutError: read timed out", signature="TimeoutError: …"))
    ledger.submit(NewJob("mail", "shop:ann:o-17:mail:v1", tags={"order_id": "17"}))
    texts = ("order_id:17", "user:ann", "shop:ann*", "shop:ann:o-17", "17")
    for text in texts:
        if text == "17":  # no job has this id, so it is a text
            continue
        result = ann.jobs.search(text)
        assert [line.kind for line in result.jobs] == ["mail", "crm.sync"], text
        assert [letter.kind for letter in result.letters] == ["crm.sync"], text
        assert not result.is_cut
    assert [line.kind for line in ann.jobs.search("17").jobs] == ["mail", "crm.sync"]
    assert [line.id for line in ann.jobs.search("1").jobs] == [1]
    assert [letter.id for letter in ann.jobs.search('error:"timed out" since:1h').letters] == [1]
    assert ann.jobs.search("order_id:17 state:queued").letters == ()
    assert ann.jobs.search("user:ann", limit=1).is_cut
    with pytest.raises(ValueError, match=r"unknown word 'colour'.* tenant, order_id,"):
        ann.jobs.search("colour:red")


@pytest.mark.req("Q-1")
def test_dead_letters_of_replaced_jobs_are_found(ledger: Ledger, ann: Operator) -> None:
    (number,) = die(ledger, "shop:ann:o-1:sync:v1", tags={"order_id": "17"})
    ledger.replay([number], actor="ann", because="again")
    for text in ("order_id:17", "user:ann", "key:shop:ann:o-1:sync:v1"):
        assert [letter.id for letter in ann.jobs.search(text).letters] == [number], text


@pytest.mark.req("Q-1")
def test_times_are_searched_by_bisection(ledger: Ledger, ann: Operator) -> None:
    start = datetime.now(timezone.utc)
    for _hour in range(20):
        ledger.submit_many([NewJob("mail", f"{_hour}-{number}") for number in range(5)])
        pass_time(ledger, 3600)
    now = datetime.now(timezone.utc)
    assert len(find_keys(ann, since=start)) == 0
    since, until = now - timedelta(hours=10.5), now - timedelta(hours=8.5)
    assert {key.partition("-")[0] for key in find_keys(ann, since=since, until=until)} == {"10", "11"}
    assert len(find_keys(ann, until=now - timedelta(hours=18.5))) == 10
