"""Group commit: whatever was submitted while the last commit ran is written by the next one.

A lone caller writes at once, and there is no thread of its own: of those who wait, one writes for all. Those whom one commit has
answered are on their way back, most likely: the next one is given to the last of half of them, as long as they keep coming. So
one half is in the database while the other is in the interpreter. And they wake each other, one by one: to wake a thread costs
more than to write its job, and thirty who are woken at once and then wait for the interpreter cost twice that.
"""

from __future__ import annotations

import threading
from _thread import LockType, allocate_lock, get_ident
from collections.abc import Callable, Sequence
from functools import partial
from time import sleep

from ...errors import LedgerUnavailable
from ..record import NewJob, Submitted

MOST = 1000
"""Jobs in one transaction."""
PAUSE = 0.0002
"""Seconds in which somebody has to come for the first in line to go on waiting for the rest."""
UNTIL_WOKEN = -1.0
FADING = 0.95
"""How much of those who were around is still counted on after each commit: some are on their way just now, and in no list."""

Write = Callable[[Sequence[NewJob]], list[Submitted]]


class Entry:
    """One caller's jobs, and what became of them. Belongs to its caller, and to the gathering that it has joined."""

    __slots__ = (
        "following",
        "found",
        "jobs",
        "leads",
        "overdue",
        "passes_on",
        "patient",
        "problem",
        "seen",
        "settled",
        "taken",
        "wake",
    )

    def __init__(
        self, jobs: Sequence[NewJob], wake: Callable[[], object], *, patient: bool = False, passes_on: bool = False
    ) -> None:
        self.jobs = jobs
        self.wake = wake
        self.patient = patient
        """There is a thread that waits, and looks again after a pause."""
        self.passes_on = passes_on
        """That thread wakes the following one, as soon as it has been woken itself."""
        self.leads = False
        """It is to write for all: whoever sees this calls `lead`."""
        self.overdue = self.taken = self.settled = False
        self.seen = 0
        self.following: Entry | None = None
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
        self._around = 1.0
        self._expected = 1

    def submit(self, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """Write these, alone or together with others."""
        waits = allocate_lock()
        waits.acquire()
        # Ctrl+C goes to the main thread: nobody may depend on it to be woken.
        entry = Entry(jobs, partial(_release, waits), patient=True, passes_on=get_ident() != threading.main_thread().ident)
        pause = self.join(entry)
        try:
            while not entry.leads and not entry.settled:
                waits.acquire(timeout=pause)
                if not entry.settled:
                    pause = self.look(entry)
        except BaseException:
            self._leave(entry)
            raise
        if entry.leads:
            self.lead(entry)
        elif entry.passes_on:
            _wake(entry.following)
        return entry.result()

    def join(self, entry: Entry, /) -> float:
        """Stand in line. How long to wait before the next `look`, if not woken; not at all where `entry.leads`."""
        with self._lock:
            self._waiting.append(entry)
            return self._step(entry)

    def look(self, entry: Entry, /) -> float:
        """The same for one who was woken and is not settled, or has waited as long as it was told."""
        with self._lock:
            return self._step(entry)

    def _step(self, entry: Entry) -> float:
        waiting = self._waiting
        if self._busy or entry.taken:
            return UNTIL_WOKEN
        if len(waiting) < self._expected:
            if waiting[0] is not entry:
                return UNTIL_WOKEN
            if entry.patient and len(waiting) > entry.seen:
                entry.seen = len(waiting)
                return PAUSE
            entry.overdue = True
        self._busy = entry.leads = True
        return 0.0

    def lead(self, leader: Entry, /) -> None:
        """Write for all who are here, wake them, and hand over to who has come meanwhile."""
        if not leader.patient:
            self._gather()
        with self._lock:
            together = self._take(leader)
        try:
            self._together(together)
        finally:
            with self._lock:
                self._busy = False
                around = len(together) + len(self._waiting)
                self._around = around if leader.overdue else max(around, self._around * FADING)
                self._expected = max(1, round(self._around / 2))
                next_in_line = self._waiting[0] if self._waiting else None
                following = None
                for entry in reversed(together):
                    entry.settled = True
                    if entry is not leader:
                        entry.following, following = following, entry
            if next_in_line is not None:
                next_in_line.wake()
            _wake(following)

    def _gather(self) -> None:
        """Of an event loop's: it could not wait in line, so it waits here, where it is a thread's."""
        came = 0
        while came < len(self._waiting) < self._expected:
            came = len(self._waiting)
            sleep(PAUSE)

    def _take(self, leader: Entry) -> list[Entry]:
        """Whoever waits, as far as they go into one transaction; the leader in any case."""
        left = MOST - len(leader.jobs)
        together: list[Entry] = []
        rest: list[Entry] = []
        for entry in self._waiting:
            if entry is not leader:
                left -= len(entry.jobs)
            (together if entry is leader or left >= 0 else rest).append(entry)
        self._waiting = rest
        for entry in together:
            entry.taken = True
        return together

    def _together(self, entries: list[Entry]) -> None:
        try:
            found = self._write([job for entry in entries for job in entry.jobs])
        except BaseException as problem:
            # An unreachable database fails for all: to ask it once for each would multiply its timeout by the callers.
            if len(entries) == 1 or not isinstance(problem, Exception) or isinstance(problem, LedgerUnavailable):
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

    def _leave(self, entry: Entry) -> None:
        """Its caller was interrupted. What is not begun is not written, and none of the others may notice."""
        with self._lock:
            if not entry.taken and not entry.leads:
                self._waiting.remove(entry)
            passes_on = entry.passes_on and entry.settled
            entry.passes_on = passes_on
            next_in_line = self._waiting[0] if self._waiting and not self._busy else None
        if entry.leads:
            self.lead(entry)
        if passes_on:
            _wake(entry.following)
        if next_in_line is not None:
            next_in_line.wake()


def _release(waits: LockType) -> None:
    try:
        waits.release()
    except RuntimeError:
        pass  # woken already, and not yet awake


def _wake(entry: Entry | None) -> None:
    """Wake this one and the following; or leave them to it."""
    while entry is not None:
        following = entry.following
        entry.wake()
        if entry.passes_on:
            return
        entry = following


def distinct(jobs: Sequence[NewJob], write: Write, /) -> list[Submitted]:
    """Write each key once and in one order for everybody, so that two who submit the same keys never wait for each other."""
    if len(jobs) == 1:
        return write(jobs)
    first = {new[:2]: new for new in reversed(jobs)}
    names = sorted(first)
    found = dict(zip(names, write([first[name] for name in names]), strict=True))
    results = []
    for new in jobs:
        submitted = found[new[:2]]
        results.append(submitted)
        if len(names) < len(jobs) and submitted.created:
            found[new[:2]] = submitted._replace(created=False)
    return results
