"""Calls across process boundaries: signals, forks and pickled errors."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from redrive import Budget, RetryPolicy, outcome, retry

QUICK = RetryPolicy(max_attempts=3, backoff_base=0.001, jitter=0)
WAIT = """
import asyncio, sys
from redrive import RetryPolicy, retry
policy = RetryPolicy(max_attempts=3, backoff_base=300, backoff_max=300, jitter=0)

def fail():
    print("attempt", flush=True)
    raise ConnectionError

async def later():
    fail()

layer = retry(policy, attempt_timeout={limit})
if {colour!r} == "plain":
    layer.call(fail)
elif {colour!r} == "block":
    for attempt in layer.attempts():
        with attempt:
            fail()
else:
    asyncio.run(layer.acall(later))
"""


@pytest.mark.req("C-6")
@pytest.mark.parametrize("colour", ["plain", "block", "async"])
@pytest.mark.parametrize("limit", [10, None])
def test_ctrl_c_during_a_wait_ends_the_call_immediately(colour: str, limit: float | None) -> None:
    program = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WAIT.format(colour=colour, limit=limit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == "attempt\n"
        time.sleep(0.2)  # it is waiting now
        began = time.monotonic()
        program.send_signal(signal.SIGINT)
        rest, said = program.stdout.read(), program.stderr.read()
        program.wait(timeout=60)
        assert time.monotonic() - began < 50
    assert rest == ""
    assert "KeyboardInterrupt" in said
    assert program.returncode == -signal.SIGINT


def spend(number: int) -> int:
    def work() -> int:
        raise ConnectionError(number)

    return retry(QUICK, operation=f"worker {number}").call(work)


@pytest.mark.req("C-4", "C-7")
def test_a_marked_error_keeps_its_outcome_across_processes() -> None:
    asked: list[int] = []

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:

        def work() -> int:
            asked.append(1)
            return pool.submit(spend, 7).result(timeout=60)

        with pytest.raises(ConnectionError) as caught:
            retry(QUICK).call(work)
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.layer) == (3, "attempts", "worker 7")
    assert asked == [1]
    assert any("gave up on worker 7 after 3 attempts" in note for note in caught.value.__notes__)


FORK = """
import os, sys, threading
from redrive import Budget, RetryPolicy, retry, journal
from redrive.core.lock import LOCK

budget = Budget(capacity=1000, cost=1, floor=0)
layer = retry(RetryPolicy(max_attempts=4, backoff_base=0.001, jitter=0), budget=budget)
unsubscribe = journal.subscribe(lambda record: None)

def busy():
    while not done.is_set():
        try:
            layer.call(fail)
        except ConnectionError:
            pass

def fail():
    raise ConnectionError

def once():
    state = []
    def work():
        state.append(1)
        if len(state) < 3:
            raise ConnectionError
        return len(state)
    return layer.call(work)

# The first failure of a process imports what is known of errors; a fork in the middle of any import, by another thread, hangs
# the child on Python's own lock of that module.
once()
done = threading.Event()
threads = [threading.Thread(target=busy, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()

def middle():
    # Forked between two attempts: both go on by themselves.
    tries.append(1)
    if len(tries) == 1:
        children.append(os.fork())
        raise ConnectionError
    return os.getpid()

failed = 0
for _ in range(15):
    tries, children = [], []
    budget.refund(1000)
    pid = layer.call(middle)
    if children[0] == 0:
        budget.refund(1000)
        os._exit(0 if once() == 3 and pid == os.getpid() else 1)
    failed += os.waitpid(children[0], 0)[1] != 0
done.set()
print("failed", failed, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_retries_continue_in_parent_and_child_after_a_fork() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120)
    assert done.stdout == "failed 0\n", done.stdout + done.stderr


def test_threads_share_one_retry_and_one_budget() -> None:
    budget = Budget(capacity=500, cost=1, refill=0, floor=0)
    layer = retry(RetryPolicy(max_attempts=1000, backoff_base=0, jitter=0), budget=budget, on=ConnectionError)
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise ConnectionError

    def go() -> None:
        for _ in range(10):
            with pytest.raises(ConnectionError):
                layer.call(work)

    threads = [threading.Thread(target=go) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 100 + 500
