"""Correlation ids travel from a call to its jobs, across processes and queues."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from redrive import App, correlate, journal, retry
from redrive.core.context import IDS
from redrive.ledger import AsyncLedger, Ledger, NewJob, open_ledger
from redrive.testing import instant
from tests.conformance.ledger.world import claim, new, pass_time

IDS_OF_ANN = {"request_id": "r-1", "user_id": "ann"}


@pytest.mark.req("J-2")
def test_a_job_carries_the_ids_of_its_submitter(ledger: Ledger) -> None:
    with correlate(request_id="r-1", user_id="ann"):
        ledger.submit(*new("a"))
        ledger.submit(*new("own", ids={"request_id": "r-9"}))
        ledger.submit(*new("none", ids={}))
        with ledger.begin() as tx:
            ledger.submit(*new("in a transaction"), tx=tx)
    ledger.submit(*new("outside"))
    assert {lease.key: lease.ids for lease in claim(ledger)} == {
        "a": IDS_OF_ANN,
        "own": {"request_id": "r-9"},
        "none": {},
        "in a transaction": IDS_OF_ANN,
        "outside": {},
    }


@pytest.mark.req("J-2")
def test_concurrent_tasks_keep_their_own_ids(ledger: Ledger) -> None:
    together = AsyncLedger(ledger)

    async def submit(number: int) -> None:
        with correlate(request_id=f"r-{number}"):
            await together.submit(*new(f"k-{number}"))

    async def main() -> None:
        await asyncio.gather(*map(submit, range(50)))

    asyncio.run(main())
    together.close()
    assert {lease.key: lease.ids["request_id"] for lease in claim(ledger)} == {f"k-{each}": f"r-{each}" for each in range(50)}


@pytest.mark.req("J-2")
def test_records_and_jobs_of_an_attempt_carry_the_ids(ledger: Ledger) -> None:
    with correlate(request_id="r-1", user_id="ann"):
        ledger.submit(*new("a"))

    @retry(max_attempts=2, backoff_base=0, jitter=0)
    def work() -> None:
        raise TimeoutError

    heard = journal.ring(10)
    unsubscribe = journal.subscribe(heard, inline=True)
    with correlate(request_id="the worker's own", worker="w1"):
        token = IDS.set(claim(ledger)[0].ids)  # as a worker does for an attempt
        with instant(), pytest.raises(TimeoutError):
            work()
        ledger.submit(*new("caused by it"))
        IDS.reset(token)
        assert IDS.get() == {"request_id": "the worker's own", "worker": "w1"}
    unsubscribe()
    assert [(record.fields["request_id"], record.fields["user_id"]) for record in heard.records] == [("r-1", "ann")] * 2
    assert all("worker" not in record.fields for record in heard.records)
    assert claim(ledger)[0].ids == IDS_OF_ANN


@pytest.mark.req("J-2")
def test_ids_survive_a_crash_a_dead_letter_and_its_replay(ledger: Ledger) -> None:
    with correlate(request_id="r-1", user_id="ann"):
        ledger.submit(*new("a"))
    claim(ledger)
    pass_time(ledger, 3600)
    ledger.reap()
    ledger.settle(claim(ledger)[0].dead("attempts"))
    (letter,) = ledger.dead_letters()
    assert letter.ids == IDS_OF_ANN
    with correlate(request_id="the operator's"):
        ledger.replay([letter.id], actor="ann", because="again")
    assert claim(ledger)[0].ids == IDS_OF_ANN


WORKER = """
import sys
from redrive import journal, retry
from redrive.ledger import open_ledger
from redrive.core.context import IDS
def tell(record): print(record.kind, record.fields["request_id"], record.fields["user_id"])
journal.subscribe(tell, inline=True)
@retry(max_attempts=2, backoff_base=0, jitter=0)
def work(): raise TimeoutError
with open_ledger(sys.argv[1]) as ledger:
    (lease,) = ledger.claim({"crm": 1}, worker="other")
    IDS.set(lease.ids)
    try: work()
    except TimeoutError: pass
    ledger.settle(lease.done())
"""


@pytest.mark.req("J-2")
def test_ids_travel_from_a_spilled_call_to_another_process(url: str) -> None:
    with App(url) as app:

        @retry(max_attempts=2, backoff_base=0, jitter=0, spill=app.spill("crm"))
        def sync(contact: int) -> None:
            raise TimeoutError

        with correlate(request_id="r-1", user_id="ann"), pytest.raises(TimeoutError):
            sync(7)
    done = subprocess.run([sys.executable, "-c", WORKER, url], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["retry r-1 ann", "giveup r-1 ann"]), done.stderr
    with open_ledger(url) as ledger:
        assert ledger.counts()["crm"].done == 1
        assert ledger.submit(NewJob("crm", "x")).created
