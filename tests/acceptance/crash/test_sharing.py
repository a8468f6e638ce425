"""One ledger shared by threads and forked children: every job runs once, and no connection is shared."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from redrive.ledger import open_ledger
from tests.zygote import ROOT, Zygote

from .diary import read
from .oracle import prepare
from .sharing import CHILDREN, EACH, THREADS


@pytest.mark.req("L-11")
def test_threads_and_forked_children_share_a_ledger(url: str, zygote: Zygote, tmp_path: Path) -> None:
    prepare(url)
    diary, output = tmp_path / "diary", tmp_path / "output"
    status = zygote.wait(zygote.fork("tests.acceptance.crash.sharing", [url, str(diary)], output=output))
    assert (status, output.read_text()) == (0, "")
    ran = Counter(line[2] for line in read(diary))
    users = CHILDREN + THREADS + 1
    assert len(ran) == 1 + (users + 1) * EACH
    assert set(ran.values()) == {1}
    with open_ledger(url) as ledger:
        tally = ledger.counts()["plain"]
        assert (tally.submitted, tally.done, tally.late) == (len(ran), len(ran), 0)
        assert ledger.imbalance() == []


HELD = """
import os, sys, threading, warnings
from contextlib import ExitStack
from redrive.ledger import NewJob, open_ledger
from tests.acceptance.crash.sharing import fork_child

warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: that is what is tested
ledger = open_ledger(sys.argv[1], migrate=True)
ledger.submit(NewJob("plain", "before"))
held, free = threading.Event(), threading.Event()

def hold():
    # On Postgres one pool is for both.
    with ExitStack() as stack:
        for lock in {ledger._notifier._changed, ledger._write._lock, ledger._read._lock, ledger.group_commit._lock}:
            stack.enter_context(lock)
        held.set()
        free.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = fork_child(lambda: ledger.submit(NewJob("plain", "child")), ledger.counts, ledger.close)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
free.set()
thread.join()
ledger.submit(NewJob("plain", "after"))
sys.exit(status)
"""


@pytest.mark.req("L-11")
def test_a_child_forked_during_a_transaction_of_another_thread_does_not_hang(url: str) -> None:
    prepare(url)
    done = subprocess.run([sys.executable, "-c", HELD, url], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    with open_ledger(url) as ledger:
        assert ledger.counts()["plain"].submitted == 3
