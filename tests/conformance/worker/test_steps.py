"""Steps of jobs through the whole worker, on each database, with repeated and stored results."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Connection, text

from redrive import current, retry
from redrive.errors import LeaseLost
from redrive.ledger import Lease, Ledger, NewJob, open_ledger
from redrive.ledger.jobs.dead_letters import ReplayOptions
from redrive.ledger.jobs.dead_letters import replay as replay_fresh
from redrive.ledger.jobs.job_changes import cancel_in
from redrive.ledger.store.postgres import claim as on_postgres
from redrive.ledger.store.steps import MAX_LOADED_BYTES, Step, steps_of, write_steps
from redrive.worker.steps import JobSteps
from redrive.worker.worker import Worker

from .world import kind, record_log, submit, wait_for_jobs

pytestmark = pytest.mark.req("Q-8")


@dataclass
class Receipt:
    """The result of a step."""

    number: int
    lines: list[str]


class Flaky:
    """Counts its calls, and fails as often as configured."""

    def __init__(self, failures: int = 0) -> None:
        self.calls = 0
        self.failures = failures

    def __call__(self) -> None:
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError("no answer, token=hunter2")


def stored_steps(ledger: Ledger, job_id: int) -> list[Step]:
    with ledger.reading() as connection:
        return steps_of(connection, job_id)


def test_a_finished_step_is_not_repeated_after_a_failure(ledger: Ledger) -> None:
    calls: Counter[str] = Counter()
    results: list[Any] = []
    flaky = Flaky(2)

    def charge(amount: int) -> Receipt:
        calls["charge"] += 1
        return Receipt(amount, ["a", "b"])

    def ship() -> None:
        calls["ship"] += 1
        flaky()

    def work(lease: Lease) -> None:
        results.append(current().step("charge", charge, 5))
        current().step("ship", ship)

    with Worker(ledger, [kind("orders", work)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert (job.state, job.attempts) == ("done", 3)
    assert calls == {"charge": 1, "ship": 3}
    assert results == [Receipt(5, ["a", "b"])] * 3
    first, second = stored_steps(ledger, job.id)
    assert (first.name, first.attempts, first.result, first.error) == ("charge", 1, b'{"number":5,"lines":["a","b"]}', None)
    assert (second.name, second.attempts, second.result) == ("ship", 3, None)
    assert first.ended_at is not None
    assert second.ended_at is not None
    assert second.error is None


def test_async_steps_are_awaited_and_not_repeated(ledger: Ledger) -> None:
    calls: Counter[str] = Counter()
    flaky = Flaky(1)

    async def fetch(number: int) -> int:
        calls[str(number)] += 1
        await asyncio.sleep(0)
        return number * 2

    def total(numbers: list[int]) -> int:
        return sum(numbers)

    async def work(lease: Lease) -> bytes:
        doubled = await asyncio.gather(*(current().step(f"fetch {number}", fetch, number) for number in range(5)))
        flaky()
        moved = await current().step("thread", asyncio.to_thread, total, doubled)
        return str(moved).encode()

    with Worker(ledger, [kind("orders", work, "async")]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert (job.state, job.attempts, job.result) == ("done", 2, b"20")
    assert set(calls.values()) == {1}
    assert len(calls) == 5


@pytest.mark.parametrize("execution", ["async", "thread"])
def test_a_step_that_is_not_awaited_fails_the_job(ledger: Ledger, execution: str) -> None:
    async def fetch() -> None:
        raise AssertionError("not called")

    async def work_async(lease: Lease) -> None:
        await current().step("first", asyncio.sleep, 0)
        current().step("charge", fetch)  # type: ignore[unused-coroutine]

    def work(lease: Lease) -> None:
        current().step("charge", fetch)  # type: ignore[unused-coroutine]

    with Worker(ledger, [kind("orders", work_async if execution == "async" else work, execution)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert job.state == "dead"
    assert job.error is not None
    assert "step 'charge' was never awaited, so that it did not run; write `await current().step(...)`" in job.error


@pytest.mark.parametrize("call", ["sleep", "wait 'approved'", "checkpoint"])
def test_a_sleep_or_wait_that_is_not_awaited_fails_the_job(ledger: Ledger, call: str) -> None:
    async def work(lease: Lease) -> None:
        if call == "sleep":
            current().asleep(days=1)  # type: ignore[unused-coroutine]
        elif call == "checkpoint":
            current().acheckpoint(1)  # type: ignore[unused-coroutine]
        else:
            current().await_for("approved", timeout=1)  # type: ignore[unused-coroutine]

    with Worker(ledger, [kind("orders", work, "async")]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert job.state == "dead"
    assert job.error is not None
    assert f"{call} was never awaited" in job.error


def test_a_failed_step_keeps_its_error_and_its_attempts(ledger: Ledger) -> None:
    flaky = Flaky(99)

    def work(lease: Lease) -> None:
        current().step("charge", retry(max_attempts=2, backoff_base=0.001, backoff_max=0.001, jitter=0)(_call(flaky)))

    with Worker(ledger, [kind("orders", work, nested="allow")]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert job.state == "dead"
    (step,) = stored_steps(ledger, job.id)
    assert flaky.calls == step.attempts == 6
    assert step.ended_at is None
    assert step.error is not None
    assert step.error.startswith("ConnectionError: no answer")
    assert "hunter2" not in step.error


def _call(flaky: Flaky) -> Any:
    def charge() -> None:
        flaky()

    return charge


def test_a_name_that_is_used_twice_is_an_error(ledger: Ledger) -> None:
    def work(lease: Lease) -> None:
        current().step("charge", int, "1")
        current().step("charge", int, "2")

    with Worker(ledger, [kind("orders", work)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert job.state == "dead"
    assert job.error is not None
    assert "step 'charge': the name was used before in this attempt; each step needs a name of its own" in job.error


def test_changed_arguments_reuse_the_result_and_are_logged(ledger: Ledger) -> None:
    flaky = Flaky(1)
    results: list[int] = []

    def double(number: int) -> int:
        return number * 2

    def work(lease: Lease) -> None:
        results.append(current().step("double", double, lease.attempt))
        flaky()

    with record_log() as records, Worker(ledger, [kind("orders", work)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert (job.state, results) == ("done", [2, 2])
    (changed,) = [record for record in records if record.kind == "step_changed"]
    assert (changed.fields["step"], changed.fields["job_id"]) == ("double", str(job.id))


def test_a_result_that_cannot_be_stored_is_an_error(ledger: Ledger) -> None:
    calls: list[str] = []

    def wrong() -> int:
        calls.append("wrong")
        return "text"  # type: ignore[return-value]

    def not_storable() -> Flaky:
        calls.append("not storable")
        return Flaky()

    def work(lease: Lease) -> None:
        current().step("only", wrong if lease.key.split(":")[2] == "0" else not_storable)

    with Worker(ledger, [kind("orders", work)]):
        first, second = wait_for_jobs(ledger, *submit(ledger, "orders", 2))
    assert (first.state, first.reason) == ("dead", "result")
    assert first.error is not None
    assert "has run, but its result cannot be stored: expected int, not str" in first.error
    assert second.error is not None
    assert "step 'only': the result of " in second.error
    assert calls == ["wrong"], "a step that cannot be stored does not run"
    (step,) = stored_steps(ledger, first.id)
    assert (step.name, step.attempts, step.ended_at) == ("only", 1, None)
    assert step.error is not None
    assert "has run, but its result cannot be stored" in step.error


def test_long_results_are_read_when_they_are_needed(ledger: Ledger) -> None:
    flaky = Flaky(1)
    long = "x" * (MAX_LOADED_BYTES + 1)

    def work(lease: Lease) -> None:
        assert current().step("long", str, long) == long
        flaky()

    with Worker(ledger, [kind("orders", work)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert job.state == "done"
    (step,) = stored_steps(ledger, job.id)
    assert step.result is None
    assert step.result_bytes == len(long) + 2


def test_a_step_in_a_transaction_is_stored_with_it(ledger: Ledger) -> None:
    flaky, calls = Flaky(1), Counter[str]()

    def charge() -> int:
        calls["charge"] += 1
        return 7

    def work(connection: Connection, lease: Lease) -> bytes:
        charged = current().step("charge", charge)
        assert steps_of(connection, lease.job_id)[0].name == "charge"
        flaky()
        return str(charged).encode()

    with Worker(ledger, [kind("orders", work, "transaction")]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert (job.state, job.result) == ("done", b"7")
    assert calls["charge"] == 2, "the first attempt was rolled back, with its step"
    assert [step.name for step in stored_steps(ledger, job.id)] == ["charge"]


def test_an_attempt_without_a_lease_stores_nothing(ledger: Ledger) -> None:
    ledger.submit(NewJob("orders", "shop:ann:1:orders:v1"))
    (lease,) = ledger.claim({"orders": 1}, worker="zombie")
    zombie = JobSteps(ledger, lease, ledger.now)
    assert zombie.step("charge", int, ("1",), {}) == 1
    ledger.settle(lease.again())
    (newer,) = ledger.claim({"orders": 1}, worker="other")
    with pytest.raises(LeaseLost, match="step 'ship' was not stored"):
        zombie.step("ship", int, ("2",), {})
    assert [step.name for step in stored_steps(ledger, lease.job_id)] == ["charge"]
    ledger.settle(newer.done())


def test_an_async_attempt_without_a_lease_stores_nothing(ledger: Ledger) -> None:
    async def ship() -> int:
        return 1

    ledger.submit(NewJob("orders", "shop:ann:1:orders:v1"))
    (lease,) = ledger.claim({"orders": 1}, worker="zombie")
    ledger.settle(lease.done())
    with pytest.raises(LeaseLost, match="step 'ship' was not stored"):
        asyncio.run(JobSteps(ledger, lease, ledger.now).step("ship", ship, (), {}))
    assert stored_steps(ledger, lease.job_id) == []


def test_a_cancelled_attempt_stores_the_step_that_has_run(ledger: Ledger) -> None:
    ledger.submit(NewJob("orders", "shop:ann:1:orders:v1"))
    (lease,) = ledger.claim({"orders": 1}, worker="w")

    async def run() -> None:
        async def charge() -> int:
            asyncio.get_running_loop().call_soon(task.cancel)  # while the step is being written
            return 1

        task = asyncio.ensure_future(JobSteps(ledger, lease, ledger.now).step("charge", charge, (), {}))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [step.name for step in stored_steps(ledger, lease.job_id)] == ["charge"]

    asyncio.run(run())


def test_steps_that_end_at_the_same_time_share_a_transaction(ledger: Ledger) -> None:
    ledger.submit_many(NewJob("orders", f"shop:ann:{at}:orders:v1") for at in range(4))
    leases = ledger.claim({"orders": 4}, worker="w")
    ledger.settle(leases[1].done())
    now = ledger.now()
    steps = [Step("step", 'a "\\" name', b"digest", b"[1]", None, attempts=1, started_at=now, ended_at=now)] * 4
    steps[3] = Step("step", "failed", error="ValueError: {NULL}", started_at=now)
    with ledger.connections.group_commit.use() as session:
        assert write_steps(session, list(zip(leases, steps, strict=True))) == [True, False, True, True]
    names = [[step.name for step in stored_steps(ledger, lease.job_id)] for lease in leases]
    assert names == [['a "\\" name'], [], ['a "\\" name'], ["failed"]]
    assert stored_steps(ledger, leases[0].job_id)[0] == steps[0]._replace(result_bytes=3)
    assert stored_steps(ledger, leases[3].job_id)[0] == steps[3]


def test_a_locked_job_does_not_block_the_steps_of_others(postgres_ledger: str) -> None:
    with open_ledger(postgres_ledger, migrate=True) as ledger:
        ledger.submit_many(NewJob("orders", f"shop:ann:{at}:orders:v1") for at in range(2))
        first, second = ledger.claim({"orders": 2}, worker="w")
        step = Step("step", "charge", started_at=ledger.now(), ended_at=ledger.now())
        with ledger.begin() as connection:
            connection.execute(text("SELECT 1 FROM redrive_job WHERE id = :id FOR UPDATE"), {"id": first.job_id})
            with ledger.connections.group_commit.use() as session:
                assert write_steps(session, [(first, step), (second, step)]) == [False, True]
        JobSteps(ledger, first, ledger.now).step("charge", int, ("1",), {})
        assert [len(stored_steps(ledger, lease.job_id)) for lease in (first, second)] == [1, 1]


@pytest.mark.parametrize("act", ["step", "checkpoint"])
def test_a_job_in_a_long_transaction_can_be_renewed_and_cancelled(postgres_ledger: str, act: str) -> None:
    with open_ledger(postgres_ledger, migrate=True) as ledger, open_ledger(postgres_ledger) as others:
        submit(ledger, "orders")
        (lease,) = ledger.claim({"orders": 1}, worker="w")
        with ledger.begin() as connection:
            job = JobSteps(ledger, lease, ledger.now, connection=connection)
            if act == "step":
                assert job.step("charge", int, ("1",), {}) == 1
            else:
                job.reports.checkpoint(12)
            # The worker renews all its leases in one statement, which must not wait for this job.
            with others.connections.write.use() as session, session.transaction("renew", lock_seconds=1.0):
                assert on_postgres.renew(session.run, [lease], 60.0) == []
                assert cancel_in(session, [lease.job_id]).done == {lease.job_id: "stopping"}
            ledger.settle(lease.done(), tx=connection)
        assert [step.name for step in stored_steps(ledger, lease.job_id)] == (["charge"] if act == "step" else [])


def test_each_step_has_its_own_key(ledger: Ledger) -> None:
    keys: list[str] = []

    def note() -> None:
        keys.append(str(current().key))

    def work(lease: Lease) -> None:
        note()
        current().step("charge", note)
        note()

    with Worker(ledger, [kind("orders", work)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert keys == [job.key, "shop:ann:0:orders.charge:v1", job.key]


def test_a_sync_function_does_not_block_the_event_loop(ledger: Ledger) -> None:
    async def work(lease: Lease) -> None:
        current().step("charge", int, "1")

    with Worker(ledger, [kind("orders", work, "async")]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert job.error is not None
    assert "await current().step('charge', asyncio.to_thread, int, ...)" in job.error


def test_outside_of_a_job_a_step_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="step 'charge': no job is running here; submit the command"):
        current().step("charge", int, "1")


def test_a_replay_reuses_finished_steps_unless_it_is_fresh(ledger: Ledger) -> None:
    calls: Counter[str] = Counter()
    flaky = Flaky(3)

    def charge() -> int:
        calls["charge"] += 1
        return calls["charge"]

    def work(lease: Lease) -> bytes:
        charged = current().step("charge", charge)
        flaky()
        return str(charged).encode()

    with Worker(ledger, [kind("orders", work)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
        (letter,) = ledger.dead_letters()
        flaky.failures = 6
        replay = ledger.replay([letter.id], actor="ann", because="test")
        (second,) = wait_for_jobs(ledger, replay.done[letter.id])
        assert (second.state, calls["charge"]) == ("dead", 1)
        assert stored_steps(ledger, job.id) == [], "the steps belong to the replay now"
        with ledger.connections.write.use() as session:
            fresh = replay_fresh(session, [letter.id], actor="ann", because="test", options=ReplayOptions(fresh=True))
        (third,) = wait_for_jobs(ledger, fresh.done[letter.id])
    assert (third.state, third.result, calls["charge"]) == ("done", b"2", 2)
    assert [step.name for step in stored_steps(ledger, second.id)] == ["charge"], "the old ones stay with the old job"


def test_steps_are_pruned_with_their_job(ledger: Ledger) -> None:
    with Worker(ledger, [kind("orders", lambda lease: current().step("charge", int, "1") and None)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "orders"))
    assert len(stored_steps(ledger, job.id)) == 1
    assert ledger.prune(0) == 1
    assert stored_steps(ledger, job.id) == []
