"""The status of a ledger, by job type and displayed state."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy

from redrive import App
from redrive.errors import NotAllowed
from redrive.ledger import Ledger, NewJob
from redrive.ledger.db.tables import HEAD, kind
from redrive.ledger.queries import overview as stored
from redrive.ops import DeadLetterFilter
from redrive.ops.operator import Operator
from tests.conformance.ledger.world import pass_time
from tests.conformance.ops.world import SECRET


def test_jobs_are_counted_by_job_type_and_displayed_state(ledger: Ledger, ann: Operator) -> None:
    ledger.submit_many([NewJob("mail", f"{each}") for each in range(10)])
    pass_time(ledger, 100)
    ledger.submit(NewJob("sms", "later", delay=600))
    leases = ledger.claim({"mail": 7}, worker="w1")
    ledger.settle([leases[0].done(), leases[1].again(60), leases[2].dead("attempts"), leases[3].blocked("credentials")])
    ledger.settle([leases[4].dead("attempts"), leases[5].dead("attempts")])
    first, second, _third = (letter.id for letter in ledger.dead_letters(reason="attempts"))
    ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(first,))), because="again")
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=(second,))), because="old")
    ledger.maintenance.heartbeat("w1", {"app": "shop"})
    found = ann.status()
    mail, sms = found.kinds
    assert mail.states == {
        "queued": 3, "retry_wait": 1, "waiting": 0, "replaying": 1, "running": 1, "blocked": 1, "dlq": 1, "done": 1,
        "cancelled": 0, "discarded": 2,
    }  # fmt: skip
    assert (mail.name, mail.submitted, sum(mail.states.values()), mail.due) == ("mail", 11, 11, 4)
    assert mail.oldest_due is not None
    assert timedelta(seconds=95) < found.now - mail.oldest_due < timedelta(seconds=130)
    assert (sms.states["queued"], sms.due, sms.oldest_due) == (1, 0, None)
    assert sms.next_due is not None
    assert timedelta(seconds=550) < sms.next_due - found.now < timedelta(seconds=601)
    assert (found.schema, [worker.name for worker in found.workers], found.workers[0].info) == (HEAD, ["w1"], {"app": "shop"})
    assert found.sentence == "12 submitted = 1 done + 6 queued + 1 running + 2 dead + 2 discarded or replayed"


@pytest.mark.req("Q-2", "Q-8")
def test_cancelled_and_waiting_jobs_are_counted(ledger: Ledger, ann: Operator) -> None:
    ids = [each.id for each in ledger.submit_many([NewJob("mail", f"{each}") for each in range(5)])]
    first, second, *_ = ledger.claim({"mail": 3}, worker="w1")
    ledger.settle([first.suspended(600, waits_for=""), second.suspended(600, waits_for="paid")])
    ledger.control.cancel(ids[-2:], actor="ann", because="not needed")
    (mail,) = ann.status().kinds
    assert {state: count for state, count in mail.states.items() if count} == {"waiting": 2, "running": 1, "cancelled": 2}
    assert ann.status().sentence == (
        "5 submitted = 0 done + 2 queued + 1 running + 0 dead + 0 discarded or replayed + 2 cancelled"
    )
    (line,) = ann.overview.summary().kinds
    assert (line.waiting, line.suspended, line.retry_wait, line.first_attempts, line.cancelled) == (2, 2, 0, 0, 2)
    assert ann.overview.summary().sentence == ann.status().sentence


def test_status_of_an_empty_and_of_a_pruned_ledger(ledger: Ledger, ann: Operator) -> None:
    assert (ann.status().kinds, ann.status().workers, ann.status().parked) == ((), (), {})
    ledger.submit(NewJob("mail", "a"))
    ledger.settle(ledger.claim({"mail": 1}, worker="w1")[0].done())
    pass_time(ledger, 100)
    ledger.prune(10)
    (mail,) = ann.status().kinds
    assert (mail.states["done"], mail.pruned) == (1, 1)
    assert ann.status().sentence.startswith("1 submitted = 1 done + 0 queued")


def test_parked_job_types_are_named(ledger: Ledger, ann: Operator) -> None:
    now = ledger.now()
    with ledger.begin() as tx:
        for name, since in (("mail", now - timedelta(hours=1)), ("sms", None)):
            tx.execute(sqlalchemy.insert(kind).values(kind=name, parked_at=since, reason="503", updated_at=now))
    assert ann.status().parked == {"mail": "503"}


@pytest.mark.req("O-5")
def test_keys_are_listed_shown_and_released(ledger: Ledger, ann: Operator) -> None:
    with App(ledger) as app:
        with app.claim("shop:ann:o-1:charge:v1", request={"n": 1}) as claim:
            claim.response = {"charge": 7, "token": SECRET}
        with pytest.raises(ValueError, match="declined"), app.claim("shop:bob:o-2:charge:v1"):
            raise ValueError(f"declined, password={SECRET}")
        assert [(one.key, one.status) for one in ann.keys.find(limit=10)] == [
            ("shop:ann:o-1:charge:v1", "completed"),
            ("shop:bob:o-2:charge:v1", "failed"),
        ]
        assert [one.user for one in ann.keys.find(status="failed")] == ["bob"]
        assert [one.user for one in ann.keys.find(user="ann", domain="shop")] == ["ann"]
        assert ann.keys.find(abandoned=True) == []
        done, failed = ann.keys.get("shop:ann:o-1:charge:v1"), ann.keys.get("shop:bob:o-2:charge:v1")
        assert done is not None
        assert failed is not None
        assert done.response == {"charge": 7, "token": "[redacted]"}
        assert failed.error is not None
        assert SECRET not in str((done, failed))
        assert ann.keys.get("shop:ann:none:charge:v1") is None
        with app.claim("shop:ann:o-3:charge:v1") as claim:
            claim.response = 1
            with pytest.raises(NotAllowed, match="is in use by"):
                ann.keys.release("shop:ann:o-3:charge:v1", because="impatient")
        with pytest.raises(ValueError, match="because= must say why"):
            ann.keys.release("shop:bob:o-2:charge:v1", because="")
        with pytest.raises(NotAllowed, match="not found"):
            ann.keys.release("shop:bob:none:charge:v1", because="x")
        assert ann.audit.find() == []
        ann.keys.release("shop:bob:o-2:charge:v1", because="another card")
        assert ann.keys.get("shop:bob:o-2:charge:v1") is None
    assert [(one.actor, one.action, one.because) for one in ann.audit.find()] == [("ann", "key.release", "another card")]


@pytest.mark.req("Q-2")
def test_a_job_that_failed_and_then_waits_is_not_a_retry(ledger: Ledger, ann: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.submit_many([NewJob("mail", f"{each}") for each in range(6)])
    leases = ledger.claim({"mail": 6}, worker="w1")
    ledger.settle([lease.again(0.0, error="down", reason="failed") for lease in leases])
    waiting = ledger.claim({"mail": 2}, worker="w1")
    ledger.settle([lease.suspended(600, waits_for="paid") for lease in waiting])
    (line,) = ann.overview.summary().kinds
    assert (line.waiting, line.suspended, line.retry_wait, line.retry_more, line.first_attempts) == (6, 2, 4, False, 0)
    monkeypatch.setattr(stored, "MAX_COUNTED_RETRIES", 3)
    (line,) = ann.overview.summary().kinds
    assert (line.suspended, line.retry_wait, line.retry_more) == (2, 3, True)
