"""The fork-safe lock: released in forked children, and reentrant for signal handlers."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from redrive import Budget
from redrive.core.lock import GIL, LOCK

FORK = """
import os, signal, sys, threading
from redrive import Breaker, Budget, journal
from redrive.core.lock import LOCK

held, release = threading.Event(), threading.Event()

def hold():
    with LOCK:
        held.set()
        release.wait(30)

thread = threading.Thread(target=hold)
thread.start()
held.wait(30)
child = os.fork()
if child == 0:
    signal.alarm(20)  # a child that hangs dies, and its status says so
    budget, breaker = Budget(capacity=0), Breaker(min_calls=1)
    assert budget.allow_by_floor(0.0) and not budget.allow_by_floor(0.5)
    assert breaker.record(True, 0.0) and breaker.allow(1.0) == 9.0
    assert Budget.named("after the fork").spend("transient") == 14
    journal.subscribe(print, inline=True)()
    os._exit(0)
_, status = os.waitpid(child, 0)
release.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.req("C-9", "C-12")
def test_a_child_forked_while_a_thread_holds_the_lock_does_not_hang() -> None:
    # Python 3.12 warns about forking with threads, which this test needs.
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.req("C-9")
def test_a_signal_handler_in_the_thread_that_holds_the_lock_does_not_hang() -> None:
    budget, spared = Budget(capacity=0), []

    def interrupted() -> None:
        with LOCK:  # called by a handler or a finaliser at this time:
            spared.append(budget.allow_by_floor(0.0))

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(60)
    assert spared == [True]


def test_other_threads_wait_for_the_lock() -> None:
    got = []
    with LOCK:
        thread = threading.Thread(target=lambda: got.append(LOCK.acquire(blocking=False)))
        thread.start()
        thread.join()
    assert got == [False]


def test_gil_tells_whether_the_interpreter_has_a_gil() -> None:
    assert GIL is getattr(sys, "_is_gil_enabled", lambda: True)()
