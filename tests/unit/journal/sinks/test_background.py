"""The background sink: slow and failing sinks never delay the work, and lost records are counted."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import NoReturn

import pytest

from redrive.journal import Record
from redrive.journal.bus import DropCounter
from redrive.journal.sinks.background import BackgroundSink

AT = datetime(2026, 1, 2, tzinfo=timezone.utc)
PATIENCE = 60.0  # seconds until a test that hangs fails


def record(number: int) -> Record:
    return Record("retry", AT, {"number": number})


class Gate:
    """A sink that waits until it is released."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self, told: Record) -> None:
        self.reached.set()
        self.go.wait(PATIENCE)
        self.heard.append(told.fields["number"])


@pytest.fixture
def drops() -> DropCounter:
    return DropCounter()


@pytest.fixture
def gate() -> Iterator[Gate]:
    kept = Gate()
    yield kept
    kept.go.set()


@pytest.mark.req("J-3")
def test_records_arrive_in_order_in_another_thread(drops: DropCounter) -> None:
    heard: list[tuple[int, str]] = []
    background = BackgroundSink(
        lambda told: heard.append((told.fields["number"], threading.current_thread().name)), drops.increment
    )
    for number in range(100):
        background(record(number))
    assert background.flush(PATIENCE)
    assert heard == [(number, "redrive-journal") for number in range(100)]
    assert drops.count == 0
    background.close()


@pytest.mark.req("J-3")
def test_no_thread_is_started_before_the_first_record(drops: DropCounter) -> None:
    before = threading.active_count()
    background = BackgroundSink(print, drops.increment)
    assert background.flush(0)
    background.close()
    assert threading.active_count() == before


@pytest.mark.req("J-3")
def test_a_full_queue_drops_records_without_waiting(gate: Gate, drops: DropCounter) -> None:
    background = BackgroundSink(gate, drops.increment, max_records=3)
    background(record(0))
    assert gate.reached.wait(PATIENCE)
    for number in range(1, 11):
        background(record(number))  # would block forever if it waited
    assert drops.count == 7
    assert not background.flush(0)
    gate.go.set()
    assert background.flush(PATIENCE)
    assert gate.heard == [0, 1, 2, 3]
    background.close()


@pytest.mark.req("J-3")
def test_close_does_not_wait_even_if_the_queue_is_full(gate: Gate, drops: DropCounter) -> None:
    background = BackgroundSink(gate, drops.increment, max_records=2)
    for number in range(3):
        background(record(number))
        assert gate.reached.wait(PATIENCE)
    background.close()  # would block forever if it waited
    thread = background._thread
    gate.go.set()
    assert thread is not None
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert gate.heard == [0, 1, 2]


@pytest.mark.req("J-3")
def test_close_delivers_queued_records(gate: Gate, drops: DropCounter) -> None:
    background = BackgroundSink(gate, drops.increment)
    for number in range(5):
        background(record(number))
    background.close()
    thread = background._thread
    gate.go.set()
    assert thread is not None
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert gate.heard == [0, 1, 2, 3, 4]
    assert background.flush(0)


@pytest.mark.req("J-3")
@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_sink_that_raises_still_receives_the_next_record(error: type[BaseException], drops: DropCounter) -> None:
    heard: list[int] = []

    def sink(told: Record) -> None:
        heard.append(told.fields["number"])
        if told.fields["number"] < 2:
            raise error

    background = BackgroundSink(sink, drops.increment)
    for number in range(4):
        background(record(number))
    assert background.flush(PATIENCE)
    assert heard == [0, 1, 2, 3]
    assert drops.count == 2
    background.close()


@pytest.mark.req("J-3")
def test_threads_may_share_a_sink(drops: DropCounter) -> None:
    heard: list[int] = []
    background = BackgroundSink(lambda told: heard.append(told.fields["number"]), drops.increment)
    at_once = threading.Barrier(8)

    def write() -> None:
        at_once.wait()
        for number in range(100):
            background(record(number))

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert background.flush(PATIENCE)
    assert sorted(heard) == sorted(list(range(100)) * 8)
    assert sum(thread.name == "redrive-journal" for thread in threading.enumerate()) >= 1
    background.close()


def run(program: str) -> str:
    """Return the output of a program. Python 3.12 warns about forking with threads."""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.req("J-3")
def test_a_forked_child_starts_its_own_thread() -> None:
    told = run("""
import os, signal, sys, threading
from redrive import journal
from redrive.journal.bus import SUBSCRIPTIONS, emit

go = threading.Event()
def sink(record):
    if record.fields["from"] == "parent":
        go.wait(30)
    print(record.fields["from"], record.fields["number"], flush=True)

journal.subscribe(sink)
for number in range(3):
    emit("note", {"from": "parent", "number": number})
held = SUBSCRIPTIONS[0].background
held._lock.acquire()                       # as if another thread were starting the sink's thread
with held._queue.mutex:                    # and another were writing
    child = os.fork()
if child == 0:
    signal.alarm(20)
    assert journal.flush(0)                # the parent's queue stays with the parent
    emit("note", {"from": "child", "number": 0})
    assert journal.flush(10)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
held._lock.release()
go.set()
assert journal.flush(10)
""")
    assert told.splitlines() == ["child 0", "parent 0", "parent 1", "parent 2"]


@pytest.mark.req("J-3")
def test_program_exit_waits_for_queued_records() -> None:
    told = run("""
import time
from redrive import journal
from redrive.journal.bus import emit
def sink(record):
    time.sleep(0.02)
    print(record.fields["number"], flush=True)
journal.subscribe(sink)
for number in range(5):
    emit("note", {"number": number})
""")
    assert told.split() == ["0", "1", "2", "3", "4"]


@pytest.mark.req("J-3")
def test_program_exit_does_not_wait_for_a_blocked_sink() -> None:
    run("""
import threading
from redrive import journal
from redrive.journal.bus import emit
unsubscribe = journal.subscribe(lambda record: threading.Event().wait())
emit("note", {})
other = journal.subscribe(lambda record: threading.Event().wait())
emit("note", {})
other()
""")


@pytest.mark.req("J-3")
def test_a_thread_that_cannot_start_loses_one_record_only(drops: DropCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    background = BackgroundSink(lambda told: heard.append(told.fields["number"]), drops.increment)

    def no_more(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            background(record(0))
    background(record(1))
    assert background.flush(PATIENCE)
    assert heard == [1]
    background.close()
