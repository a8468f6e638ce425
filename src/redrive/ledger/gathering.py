"""Group commit: whatever was submitted while the last commit ran is written by the next one.

Nobody waits for company that is not there: a lone caller writes at once. There is no thread of its own: of those who wait, one
writes for all.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Sequence
from time import sleep

from .record import NewJob, Submitted

MOST = 1000
"""Jobs in one transaction."""
YIELDS = 16
"""Times that other threads are let run before a write whose predecessor had company. Those are on their way back: without this
the first of them writes alone, and commits half as much at a time."""

Write = Callable[[Sequence[NewJob]], list[Submitted]]


class Entry:
    """One caller's jobs, and what became of them."""

    __slots__ = ("found", "jobs", "leads", "problem", "wake")

    def __init__(self, jobs: Sequence[NewJob], wake: Callable[[], object]) -> None:
        self.jobs = jobs
        self.wake = wake
        self.leads = False
        self.found: list[Submitted] | None = None
        self.problem: BaseException | None = None

    def result(self) -> list[Submitted]:
        """What was written for it."""
        if self.problem is not None:
            raise self.problem
        assert self.found is not None
        return self.found


class Gathering:
    """Callers whose jobs are written together. Threads and event loops may share it; a forked child makes its own."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._lock = allocate_lock()
        self._waiting: list[Entry] = []
        self._busy = False
        self._last = 1

    def submit(self, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """Write these, alone or together with others."""
        waits = allocate_lock()
        waits.acquire()
        entry = Entry(jobs, waits.release)
        if not self.join(entry):
            waits.acquire()
        if entry.leads:
            self.lead(entry)
        return entry.result()

    def join(self, entry: Entry, /) -> bool:
        """Stand in line. True: there was none, and this one writes. Else it is woken: written, or to write for all."""
        with self._lock:
            if self._busy:
                self._waiting.append(entry)
                return False
            self._busy = entry.leads = True
            return True

    def lead(self, entry: Entry, /) -> None:
        """Write this one and whatever waits, wake them, and hand over to the next."""
        for _ in range(YIELDS):
            if len(self._waiting) + 1 >= self._last:
                break
            sleep(0)
        with self._lock:
            together = [entry]
            count = len(entry.jobs)
            while self._waiting and count + len(self._waiting[0].jobs) <= MOST:
                together.append(self._waiting.pop(0))
                count += len(together[-1].jobs)
            self._last = len(together)
        try:
            self._together(together)
        finally:
            with self._lock:
                following = self._waiting.pop(0) if self._waiting else None
                self._busy = following is not None
            if following is not None:
                following.leads = True
                following.wake()
            for other in together[1:]:
                other.wake()

    def _together(self, entries: list[Entry]) -> None:
        try:
            found = self._write([job for entry in entries for job in entry.jobs])
        except BaseException as problem:
            if len(entries) == 1 or not isinstance(problem, Exception):
                for entry in entries:
                    entry.problem = problem
                return
            for entry in entries:  # one bad apple: each by itself
                self._together([entry])
            return
        start = 0
        for entry in entries:
            entry.found = found[start : start + len(entry.jobs)]
            start += len(entry.jobs)


def distinct(jobs: Sequence[NewJob], write: Write, /) -> list[Submitted]:
    """Write each key once and in one order for everybody, so that two who submit the same keys never wait for each other."""
    if len(jobs) == 1:
        return write(jobs)
    first = {(new.kind, new.key): new for new in reversed(jobs)}
    found = dict(zip(sorted(first), write([first[key] for key in sorted(first)]), strict=True))
    results = []
    for new in jobs:
        submitted = found[new.kind, new.key]
        results.append(submitted)
        if submitted.created:
            found[new.kind, new.key] = submitted._replace(created=False)
    return results
