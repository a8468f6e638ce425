"""A process forks while its threads use the ledger. Parent and children get their own connections."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from redrive.errors import LedgerError
from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.db import sqlite
from tests.ledgers import sqlite_ledger

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
CHILDREN = 4


def in_child(work: Callable[[], None]) -> int:
    """Fork, run this in the child, and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def submit(ledger: Ledger, name: str) -> None:
    for number in range(20):
        ledger.submit(NewJob("mail", f"{name} {number}"))


def codes(children: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]


@pytest.mark.req("L-11")
def test_children_forked_while_threads_write_can_write(shared: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 5.0)
    stop = threading.Event()
    written: list[str] = []

    def write(thread: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            shared.submit(NewJob("mail", f"parent {thread} {number}"))
            written.append(f"{thread} {number}")

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(3)]
    for thread in threads:
        thread.start()
    try:
        while len(written) < 10:
            stop.wait(0.005)
        children = [in_child(partial(submit, shared, f"child {child}")) for child in range(CHILDREN)]
        before = len(written)
        found = codes(children)
        while len(written) < before + 10:
            stop.wait(0.005)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert found == [0] * CHILDREN
    assert shared.counts()["mail"].submitted == len(written) + 20 * CHILDREN


@pytest.mark.req("L-11")
def test_a_child_forked_inside_a_sqlite_transaction_gets_an_error(tmp_path: Path) -> None:
    with open_ledger(sqlite_ledger(tmp_path)) as ledger:

        def use() -> None:
            with pytest.raises(LedgerError, match="forked while a transaction was open"):
                ledger.submit(NewJob("mail", "a"))

        with ledger.begin():
            child = in_child(use)
        assert codes([child]) == [0]
        ledger.submit(NewJob("mail", "b"))
        assert ledger.counts()["mail"].submitted == 1


@pytest.mark.req("L-11")
def test_a_parent_that_ends_leaves_the_file_whole_for_its_child(tmp_path: Path) -> None:
    """The last connection of a process resets the write-ahead log, but not while another process uses it."""
    url = sqlite_ledger(tmp_path)
    ready, told = os.pipe()
    ledger = open_ledger(url)
    ledger.submit(NewJob("mail", "parent"))

    def use() -> None:
        ledger.submit(NewJob("mail", "child 1"))
        assert os.read(ready, 1) == b"x"
        for number in range(2, 10):
            ledger.submit(NewJob("mail", f"child {number}"))

    child = in_child(use)
    ledger.close()
    with open_ledger(url) as other:
        other.submit(NewJob("mail", "other"))
    os.write(told, b"x")
    assert codes([child]) == [0]
    with open_ledger(url) as other:
        assert other.counts()["mail"].submitted == 11
        with other.reading() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
    for end in (ready, told):
        os.close(end)
