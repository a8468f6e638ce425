"""Spill: a call that gave up becomes a durable job, with its history."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta

import pytest

from redrive import App, Key, correlate, outcome, retry
from redrive.core.codec import from_bytes
from redrive.core.codec.codec import Arguments
from redrive.errors import RedriveWarning
from redrive.journal import Ring
from redrive.ledger import Ledger
from redrive.testing import instant

QUICK = {"max_attempts": 3, "backoff_base": 0.0, "jitter": 0.0}


@dataclass
class Contact:
    id: int
    name: str


class Service:
    def sync(self, contact: int) -> None: ...


def job_of(error: BaseException) -> int:
    ended = outcome(error)
    assert ended is not None
    return int(ended.job_id or 0)


@pytest.mark.req("Q-2")
def test_a_call_is_not_spilled_to_a_job_that_is_being_cancelled(ledger: Ledger, redrive_journal: Ring) -> None:
    app = App(ledger)

    @retry(**QUICK, spill=app.spill("crm.sync", key="crm:{user}:1:sync:v1"))  # type: ignore[call-overload, untyped-decorator]
    def sync(user: str) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError) as caught:
        sync("ann")
    (lease,) = ledger.claim({"crm.sync": 1}, worker="w")
    assert ledger.control.cancel([lease.job_id], actor="ann", because="wrong").done == {lease.job_id: "stopping"}
    with pytest.raises(ConnectionResetError) as refused:
        sync("ann")
    assert job_of(caught.value) == lease.job_id
    assert job_of(refused.value) == 0
    assert f"crm.sync job {lease.job_id} with the job key" in refused.value.__notes__[-1]
    assert "was asked to stop; submit the work again when that job has ended" in refused.value.__notes__[-1]
    kinds = [record.kind for record in redrive_journal.records]
    assert (kinds.count("spilled"), kinds.count("spill_failed")) == (1, 1)


def test_a_spilled_call_keeps_arguments_history_ids_and_key(ledger: Ledger) -> None:
    app = App(ledger)

    @retry(**QUICK, operation="crm", spill=app.spill("crm.sync", key="crm:{user}:{contact.id}:sync:v1"))  # type: ignore[call-overload, untyped-decorator]
    def sync(contact: Contact, *, user: str, force: bool = False) -> None:
        raise ConnectionResetError("token=s3cret")

    ids = []
    for _ in range(2):
        with correlate(request_id="r-1", user_id="ann"), pytest.raises(ConnectionResetError) as caught:
            sync(Contact(7, "Bob"), user="ann")
        ended = outcome(caught.value)
        assert ended is not None
        ids.append(ended.job_id)
    job = ledger.find("crm.sync", "crm:ann:7:sync:v1")
    assert job is not None
    assert ids == [str(job.id)] * 2  # once for a key
    assert (job.shown, job.ids) == ("queued", {"request_id": "r-1", "user_id": "ann"})
    assert "s3cret" not in str(job.headers)
    assert job.headers | {"redrive-elapsed": ""} == {
        "redrive-operation": "crm",
        "redrive-error": "ConnectionResetError: token=[redacted]",
        "redrive-reason": "attempts",
        "redrive-attempts": "3",
        "redrive-elapsed": "",
        "redrive-history": '[["ConnectionResetError", 0.0], ["ConnectionResetError", 0.0]]',
    }
    lease = ledger.claim({"crm.sync": 1}, worker="w1")[0]
    args, kwargs = Arguments(sync.__wrapped__).load(from_bytes(lease.payload))
    assert (args, kwargs) == ((Contact(7, "Bob"),), {"user": "ann"})
    ledger.settle(lease.done())


def test_a_spilled_job_is_due_at_the_next_retry(ledger: Ledger) -> None:
    app = App(ledger)

    @retry(max_attempts=5, backoff_base=3600, backoff_max=3600, jitter=0, timeout=10, spill=app.spill("slow"))
    def wait(number: int) -> None:
        raise ConnectionError(number)

    with pytest.raises(ConnectionError) as caught:
        wait(7)
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.reason, ended.attempts) == ("timeout", 1)
    job = ledger.get(int(ended.job_id or 0))
    assert job is not None
    assert timedelta(minutes=59) < job.due_at - ledger.now() <= timedelta(minutes=60)
    assert ledger.claim({"slow": 1}, worker="w1") == []


@pytest.mark.filterwarnings("ignore:redrive. app.spill for")
def test_the_key_of_a_spilled_job(ledger: Ledger) -> None:
    app = App(ledger)
    own = Key("crm", "ann", "all", "sync")

    def work(number: int) -> None:
        raise TimeoutError

    def key_of(options: dict[str, object], spill_key: object) -> str:
        spill = app.spill("crm", key=spill_key)  # type: ignore[arg-type]
        spilled = retry(max_attempts=1, spill=spill, **options)(work)  # type: ignore[call-overload]
        with pytest.raises(TimeoutError) as caught:
            spilled(7)
        job = ledger.get(job_of(caught.value))
        assert job is not None
        return job.key

    assert key_of({}, own) == "crm:ann:all:sync:v1"
    assert key_of({}, "crm::{number}:sync:v1") == "crm::7:sync:v1"
    assert key_of({}, lambda number: f"crm::{number}:other:v1") == "crm::7:other:v1"
    assert key_of({"key": "call::{number}:sync:v1"}, None) == "call::7:sync:v1"
    assert key_of({"key": "call::{number}:sync:v1"}, own) == "crm:ann:all:sync:v1"
    assert key_of({}, None) != key_of({}, None)


@pytest.mark.parametrize("state", ["done", "dead", "discarded"])
def test_a_call_whose_key_has_an_ended_job_is_not_enqueued(ledger: Ledger, state: str, redrive_journal: Ring) -> None:
    app = App(ledger)

    @retry(max_attempts=1, spill=app.spill("crm.sync", key="crm:ann:{contact}:sync:v1"))
    def sync(contact: int) -> None:
        raise TimeoutError

    def spill() -> TimeoutError:
        with pytest.raises(TimeoutError) as caught:
            sync(7)
        return caught.value

    job_id = job_of(spill())
    assert job_of(spill()) == job_id, "a queued job continues both calls"
    (lease,) = ledger.claim({"crm.sync": 1}, worker="w1")
    ledger.settle(lease.done() if state == "done" else lease.dead("stopped", error="no such contact"))
    if state == "discarded":
        ledger.discard([letter.id for letter in ledger.dead_letters(job_id=job_id)], actor="ann", because="no such contact")
    error = spill()
    ended = outcome(error)
    assert ended is not None
    assert ended.job_id is None, "no worker will run it"
    words = {"done": "is done", "dead": "is a dead letter", "discarded": "was discarded"}[state]
    message = f"crm.sync job {job_id} with the job key 'crm:ann:7:sync:v1' {words}, and a job key is used once"
    assert message in error.__notes__[-1]
    (record,) = [record for record in redrive_journal.records if record.kind == "spill_failed"]
    assert record.fields["error_class"] == "JobEnded"
    assert message in record.fields["error"]


def test_a_key_that_is_the_same_for_every_call_warns(ledger: Ledger) -> None:
    app = App(ledger)

    def sync(contact: int) -> None: ...

    def refresh() -> None: ...

    for key in ("crm:ann:all:sync:v1", Key("crm", "ann", "all", "sync")):
        spill = app.spill("crm.sync", key=key)
        with pytest.warns(RedriveWarning, match=r"'crm:ann:all:sync:v1' is the same for every call.*{contact}") as warned:
            retry(spill=spill)(sync)
        assert (warned[0].filename, warned[0].lineno) == (__file__, sync.__code__.co_firstlineno)
        retry(spill=spill)(refresh)  # a key without parameters


def test_arguments_that_cannot_be_stored_are_rejected_when_decorated(ledger: Ledger) -> None:
    app = App(ledger)
    layer = retry(spill=app.spill("crm", key="crm::{contact}:sync:v1"))

    def unstorable(contact: int, service: Service) -> None: ...

    def keyless(number: int) -> None: ...

    with pytest.raises(TypeError, match="self cannot be stored"):
        layer(Service.sync)
    with pytest.raises(TypeError, match="'service'"):
        layer(unstorable)
    with pytest.raises(ValueError, match="names 'contact', but .*keyless has number"):
        layer(keyless)
    with pytest.raises(TypeError, match="key= must be a Key"):
        app.spill("crm", key=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kind must be printable"):
        app.spill("")
    with pytest.raises(TypeError, match="pass it to retry"):
        app.spill("crm")(None)  # type: ignore[arg-type]


def test_an_unavailable_ledger_only_adds_a_note_to_the_error(ledger: Ledger) -> None:
    app = App(ledger)

    @retry(max_attempts=1, spill=app.spill("crm"))
    def work(number: int) -> None:
        raise TimeoutError("mine")

    assert ledger.imbalance() == []
    with pytest.raises(TimeoutError, match="mine") as odd:
        work("seven")  # type: ignore[arg-type]
    assert "could not be enqueued as a job: TypeError" in odd.value.__notes__[-1]
    work_of_another = retry(max_attempts=1, spill=App("sqlite:////no/such/folder/redrive.db").spill("crm"))(work.__wrapped__)  # type: ignore[attr-defined]
    with pytest.raises(TimeoutError, match="mine") as caught:
        work_of_another(7)
    assert "could not be enqueued as a job: LedgerError" in caught.value.__notes__[-1]


def test_a_call_is_spilled_from_async_code(ledger: Ledger) -> None:
    app = App(ledger)

    @retry(max_attempts=2, backoff_base=0, jitter=0, spill=app.spill("crm", key="crm::{number}:sync:v1"))
    async def work(number: int) -> None:
        raise TimeoutError

    async def main() -> None:
        with correlate(request_id="r-2"):
            found = await asyncio.gather(*(work(each % 5) for each in range(20)), return_exceptions=True)
        assert all(isinstance(error, TimeoutError) and job_of(error) for error in found)

    with instant():
        asyncio.run(main())
    leases = ledger.claim({"crm": 100}, worker="w1")
    assert sorted(json.loads(lease.payload)["number"] for lease in leases) == [0, 1, 2, 3, 4]
    assert all(lease.ids == {"request_id": "r-2"} for lease in leases)
    ledger.settle([lease.done() for lease in leases])
