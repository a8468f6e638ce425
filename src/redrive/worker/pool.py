"""Pool: the threads in which plain functions run."""

from __future__ import annotations

import math
import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from time import monotonic

from ..errors import AttemptTimeout, LeaseLost
from ..ledger.crashpoint import crash_point
from ..ledger.ledger import Ledger
from ..ledger.record import Lease
from .finished import Finished
from .kind import Kind
from .outcome import succeeded
from .scope import Around, enter

TELL = 32
"""Of short jobs, so many are told of at once."""
LONG = 0.001
"""Seconds; what took longer is told of at once."""


class Pool:
    """Daemon threads: a function that never returns does not hold up the end of the program. Threads may share it."""

    def __init__(self, ledger: Ledger, around: Around, threads: int, told: Callable[[list[Finished]], None], name: str) -> None:
        self._ledger = ledger
        self._around = around
        self._told = told
        self._todo: deque[tuple[Kind, Lease]] = deque()
        self._tickets: SimpleQueue[bool] = SimpleQueue()
        self._idle = threads
        self._lock = allocate_lock()
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{n + 1}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def give(self, jobs: Iterable[tuple[Kind, Lease]], threads: int, /) -> None:
        """Run these, in so many threads at least, if there are so many idle ones."""
        self._todo.extend(jobs)
        self.help(threads)

    def give_first(self, jobs: Sequence[tuple[Kind, Lease]], threads: int, /) -> None:
        """Run these before all others, in so many threads at least, if there are so many idle ones."""
        self._todo.extendleft(reversed(jobs))
        self.help(threads)

    def help(self, threads: int = 1, /) -> None:
        """One more thread for what waits: the one that was to do it may be in a long job."""
        if self._todo:
            with self._lock:
                woken = min(threads, self._idle)
                self._idle -= woken
            for _ in range(woken):
                self._tickets.put(True)

    @property
    def waiting(self) -> bool:
        """Whether anything waits for a thread."""
        return bool(self._todo)

    @property
    def waiting_last(self) -> bool:
        """Whether a started last attempt waits for a thread. These are first in the queue."""
        try:
            lease = self._todo[0][1]
        except IndexError:
            return False
        return lease.max_attempts is not None and lease.attempt >= lease.max_attempts

    @property
    def size(self) -> int:
        """How many threads there are."""
        return len(self._threads)

    def empty(self) -> list[tuple[Kind, Lease]]:
        """Take back what has not begun."""
        found = []
        while self._todo:
            try:
                found.append(self._todo.popleft())
            except IndexError:
                break
        return found

    def close(self) -> None:
        """Let idle threads end; the others end after what they do."""
        for _ in self._threads:
            self._tickets.put(False)

    def _work(self) -> None:
        while self._tickets.get():
            ended: list[Finished] = []
            while True:
                try:
                    kind, lease = self._todo.popleft()
                except IndexError:
                    break
                finished = self._attempt(kind, lease)
                ended.append(finished)
                if finished.seconds > LONG or len(ended) >= TELL or not self._todo:
                    self._tell(ended)
                    ended = []
                del finished  # an error would keep everything alive that its frames know, until the next job
            if ended:  # another thread took the last one, after this one had seen it there
                self._tell(ended)
                del ended
            with self._lock:
                self._idle += 1
            if self._todo:
                self.help()

    def _tell(self, ended: list[Finished]) -> None:
        crash_point("worker.ran")
        self._told(ended)

    def _attempt(self, kind: Kind, lease: Lease) -> Finished:
        began, seconds = monotonic(), math.inf
        if kind.settings.attempt_timeout is not None or lease.deadline_stored is not None:
            seconds = self._around.seconds(kind, lease)
            if seconds <= 0:
                return Finished(kind, lease, None, None, 0.0, unstarted=True)
        run = self._in_transaction if kind.colour == "transaction" else _plain
        return self._around.context.copy().run(run, kind, lease, seconds, began)

    def _in_transaction(self, kind: Kind, lease: Lease, seconds: float, began: float) -> Finished:
        enter(kind, lease, seconds)
        settling, result = False, None
        try:
            with self._ledger.begin() as connection:
                result = kind.run(connection, lease)
                end = succeeded(lease, result, self._ledger.max_payload)
                if end.reason is not None:
                    raise Unkept
                settling = True
                self._ledger.settle(end.settlement, tx=connection)
                settling = False
            return Finished(kind, lease, result, None, monotonic() - began, settled=True)
        except Unkept:
            return Finished(kind, lease, result, None, monotonic() - began)  # settled as what it is: a dead letter
        except LeaseLost as error:
            if settling:
                return Finished(kind, lease, None, error, monotonic() - began, late=True)
            return Finished(kind, lease, None, error, monotonic() - began)
        except BaseException as error:
            return Finished(kind, lease, None, error, monotonic() - began)


class Unkept(Exception):  # of this file alone: leaves a transaction that has a result which cannot be stored
    """Roll back."""


def _plain(kind: Kind, lease: Lease, seconds: float, began: float) -> Finished:
    enter(kind, lease, seconds)
    try:
        return Finished(kind, lease, kind.run(lease), None, monotonic() - began)
    except BaseException as error:  # SystemExit too: it ends this job, not the worker
        return Finished(kind, lease, None, error, monotonic() - began)


def timed_out(kind: Kind, lease: Lease, seconds: float) -> AttemptTimeout:
    """What an async attempt ends with when its time is up."""
    return AttemptTimeout(f"{kind.name}: attempt {lease.attempt} took longer than {seconds:.6g} s")
