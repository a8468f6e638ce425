"""Group commit: concurrent submissions of threads and event loops are written together."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redrive.ledger import AsyncLedger, Ledger, NewJob
from redrive.ledger.jobs.group_commit import MAX_BATCH, GroupCommit, Submission
from redrive.ledger.model import Submitted
from tests.conformance.ledger.world import KIND, claim, new, tally


class Slow:
    """Writes slowly, and records the jobs of each write."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Event()

    def __call__(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        self.batches.append([job.key for job in jobs])
        self.gate.wait(60)
        if any(job.key == "bad" for job in jobs):
            raise ValueError("a bad one")
        return [Submitted(1, job.kind, job.key, "ready", True, None) for job in jobs]


def until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.req("L-6")
def test_submissions_during_a_commit_are_one_batch() -> None:
    write = Slow()
    group_commit = GroupCommit(write)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(group_commit.submit, new("first"))
        until(lambda: write.batches)
        others = [pool.submit(group_commit.submit, new(f"k{at}")) for at in range(8)]
        until(lambda: len(group_commit._queue) == 8)
        write.gate.set()
        assert first.result(60)[0].key == "first"
        assert [other.result(60)[0].key for other in others] == [f"k{at}" for at in range(8)]
    assert write.batches[0] == ["first"]
    assert sorted(write.batches[1]) == [f"k{at}" for at in range(8)]
    assert len(write.batches) == 2


def test_tasks_that_submit_during_a_commit_are_one_batch() -> None:
    write = Slow()
    group_commit = GroupCommit(write)

    async def submit_all(leaders: ThreadPoolExecutor) -> list[str]:
        first = group_commit.submit_from_loop(new("first"), leaders)
        await asyncio.to_thread(until, lambda: write.batches)
        others = [group_commit.submit_from_loop(new(f"k{at}"), leaders) for at in range(100)]
        write.gate.set()
        return [(await done).result()[0].key for done in (first, *others)]

    with ThreadPoolExecutor(1) as leaders:
        keys = asyncio.run(submit_all(leaders))
    assert keys == ["first", *(f"k{at}" for at in range(100))]
    assert write.batches == [["first"], keys[1:]]


def test_a_task_that_is_woken_twice_leads_once() -> None:
    write = Slow()
    write.gate.set()
    group_commit = GroupCommit(write)

    class Leaders(ThreadPoolExecutor):
        leads = 0

        def submit(self, *args: Any, **kwargs: Any) -> Any:
            self.leads += 1
            return super().submit(*args, **kwargs)

    async def submit(leaders: Leaders) -> None:
        group_commit._is_writing = True
        done = group_commit.submit_from_loop(new("x"), leaders)
        group_commit._is_writing = False
        with group_commit._lock:
            (waiting,) = group_commit._queue
        waiting.wake()
        waiting.wake()
        assert (await done).result()[0].key == "x"

    with Leaders(1) as leaders:
        asyncio.run(submit(leaders))
        assert leaders.leads == 1
    assert write.batches == [["x"]]


def test_an_invalid_job_does_not_fail_the_other_submitters() -> None:
    write = Slow()
    group_commit = GroupCommit(write)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(group_commit.submit, new("first"))
        until(lambda: write.batches)
        others = {key: pool.submit(group_commit.submit, new(key)) for key in ("a", "bad", "b")}
        until(lambda: len(group_commit._queue) == 3)
        write.gate.set()
        first.result(60)
        assert others["a"].result(60)[0].key == "a"
        assert others["b"].result(60)[0].key == "b"
        with pytest.raises(ValueError, match="a bad one"):
            others["bad"].result(60)
    assert not group_commit._is_writing


def test_a_closed_event_loop_does_not_block_the_other_submitters() -> None:
    write = Slow()
    write.gate.set()
    group_commit = GroupCommit(write)
    gone: Submission[NewJob, Submitted] = Submission(new("x"), lambda: None)
    group_commit.join(gone)
    assert gone.is_leader
    group_commit.lead(gone)
    assert group_commit.submit(new("y"))[0].key == "y"


def test_a_submitter_does_not_wait_for_others_that_stopped() -> None:
    write = Slow()
    group_commit = GroupCommit(write)
    with ThreadPoolExecutor(9) as pool:
        others = [pool.submit(group_commit.submit, new(f"k{at}")) for at in range(9)]
        until(lambda: len(group_commit._queue) == 8)
        write.gate.set()
        for other in others:
            other.result(60)
    assert group_commit._batch_target > 1
    assert group_commit.submit(new("alone"))[0].key == "alone"  # in the main thread, after all of them have ended
    assert group_commit._batch_target == 1
    assert write.batches[-1] == ["alone"]


def test_a_full_batch_leaves_the_rest_for_the_next_transaction() -> None:
    write = Slow()
    group_commit = GroupCommit(write)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(group_commit.submit, new("first"))
        until(lambda: write.batches)
        others = [pool.submit(group_commit.submit, new(*(f"{at}-{n}" for n in range(MAX_BATCH // 2)))) for at in range(4)]
        until(lambda: len(group_commit._queue) == 4)
        write.gate.set()
        assert first.result(60)
        assert [len(other.result(60)) for other in others] == [MAX_BATCH // 2] * 4
    assert [len(batch) for batch in write.batches] == [1, MAX_BATCH, MAX_BATCH]


@pytest.mark.parametrize("first_in_line", [True, False])
def test_an_interrupted_submitter_leaves_the_queue(first_in_line: bool) -> None:
    write = Slow()
    group_commit = GroupCommit(write)
    with ThreadPoolExecutor(5) as pool:
        leader = pool.submit(group_commit.submit, new("leader"))
        until(lambda: write.batches)
        before = [] if first_in_line else [pool.submit(group_commit.submit, new("before"))]
        until(lambda: len(group_commit._queue) == len(before))
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            with pytest.raises(KeyboardInterrupt):
                group_commit.submit(new("interrupted"))
        finally:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        after = [pool.submit(group_commit.submit, new(f"after {at}")) for at in range(2)]
        write.gate.set()
        assert all(other.result(60) for other in (leader, *before, *after))
    assert "interrupted" not in [key for batch in write.batches for key in batch]
    assert not group_commit._is_writing
    assert group_commit.submit(new("last"))


def test_an_interrupted_submitter_does_not_break_the_wake_chain() -> None:
    write = Slow()
    group_commit = GroupCommit(write)
    with ThreadPoolExecutor(9) as pool:
        leader = pool.submit(group_commit.submit, new("leader"))
        until(lambda: write.batches)
        others = [pool.submit(group_commit.submit, new(f"k{at}")) for at in range(4)]
        until(lambda: len(group_commit._queue) == 4)
        second = threading.Event()

        def go_on() -> None:
            until(lambda: len(group_commit._queue) == 5)
            write.gate.set()
            write.gate = second
            until(lambda: len(write.batches) == 2)
            signal.setitimer(signal.ITIMER_REAL, 0.02)

        signal.signal(signal.SIGALRM, signal.default_int_handler)
        helper = pool.submit(go_on)
        try:
            with pytest.raises(KeyboardInterrupt):
                group_commit.submit(new("interrupted"))
        finally:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        last = pool.submit(group_commit.submit, new("last"))
        second.set()
        helper.result(60)
        assert all(other.result(60) for other in (leader, *others, last))
    assert not group_commit._is_writing


def test_concurrent_threads_submit_every_job_once(ledger: Ledger) -> None:
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda at: ledger.submit(NewJob(KIND, str(at % 100), b"x")), range(400)))
    assert sum(one.created for one in found) == 100
    assert tally(ledger)[:2] == (100, 100)
    assert {one.id for one in found} == {lease.job_id for lease in claim(ledger, 1000)}


def test_concurrent_tasks_submit_every_job_once(ledger: Ledger) -> None:
    async def main() -> None:
        aio = AsyncLedger(ledger)
        found = await asyncio.gather(*(aio.submit(NewJob(KIND, str(at % 100))) for at in range(300)))
        assert sum(one.created for one in found) == 100
        assert await aio.submit_many([]) == []
        with pytest.raises(ValueError, match="key must be printable"):
            await aio.submit(NewJob(KIND, ""))
        assert (await aio.run(ledger.find, KIND, "7")) is not None
        assert len(await aio.run(ledger.claim, {KIND: 5}, worker="w")) == 5
        aio.close()

    asyncio.run(main())
    assert tally(ledger).submitted == 100


def test_cancelled_tasks_do_not_block_the_others(ledger: Ledger) -> None:
    async def main() -> None:
        aio = AsyncLedger(ledger)
        for round_ in range(20):
            tasks = [asyncio.create_task(aio.submit(NewJob(KIND, f"{round_}-{at}"))) for at in range(10)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
            assert all(isinstance(one, Submitted) for one in found[1::2])
        assert (await aio.submit(NewJob(KIND, "last"))).created
        aio.close()

    asyncio.run(main())


def test_a_worker_is_woken_by_a_submission(ledger: Ledger) -> None:
    wake = ledger.listen()
    assert not wake.wait(0.05)
    threading.Timer(0.1, lambda: ledger.submit(*new("a"))).start()
    assert wake.wait(60)
    wake.close()


def test_a_worker_is_woken_by_another_program(shared: Ledger, url: str) -> None:
    from redrive.ledger import open_ledger

    wake = shared.listen()
    with open_ledger(url) as other:
        threading.Timer(0.1, lambda: other.submit(*new("a"))).start()
        assert wake.wait(60)
        time.sleep(0.05)
    wake.close()
