"""A program that opens one ledger before forking, and uses it from threads, children and the parent at the same time."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from redrive.ledger import Ledger, NewJob, open_ledger

from .diary import Diary

CHILDREN = 3
EACH = 20
THREADS = 4


def main(arguments: Sequence[str]) -> int:
    """Fork, submit and run jobs in all processes. Return 0 if all of them succeed."""
    url, path = arguments
    diary = Diary(Path(path))
    ledger = open_ledger(url, migrate=True)
    ledger.submit(NewJob("plain", "before"))  # the parent's connections are open, and one has prepared statements
    ledger.counts()
    children = [fork_child(partial(use, ledger, diary, f"child{child}"), ledger.close) for child in range(CHILDREN)]
    children.append(fork_child(ledger.close))  # a child that does not use the ledger
    threads = [threading.Thread(target=use, args=(ledger, diary, f"thread{n}")) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    use(ledger, diary, "parent")  # its connections were not closed
    ledger.close()
    return max(map(abs, statuses))


def fork_child(*acts: Callable[[], object]) -> int:
    """Fork a child that runs this function, and return its process id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for act in acts:
                act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def use(ledger: Ledger, diary: Diary, name: str) -> None:
    """Submit jobs one by one, and run all queued jobs."""
    for n in range(EACH):
        ledger.submit(NewJob("plain", f"{name}-{n}"))
        ledger.submit(NewJob("plain", f"shared-{n}"))
        turn = ledger.turn((), {"plain": 3}, worker=name)
        for lease in turn.leases:
            diary.note("effect", "plain", lease.key, name)
        ledger.settle([lease.done() for lease in turn.leases])
    while leases := ledger.claim({"plain": 10}, worker=name):
        for lease in leases:
            diary.note("effect", "plain", lease.key, name)
        ledger.settle([lease.done() for lease in leases])
