"""Group commit: one transaction writes the jobs of all callers that submit at the same time.

Finished steps of running jobs are written in the same way.

A single caller writes at once. Of several waiting callers, one becomes the leader and writes for
all: there is no extra thread. Callers released by one commit usually submit again soon, so the next
commit waits until about half of them have queued. So one half is in the database while the other
half runs Python code.

Callers wake each other in a chain. Waking a thread costs more than writing its job, and thirty
threads that wake at once and wait for the GIL cost twice that.
"""

from __future__ import annotations

import asyncio
import os
import threading
from _thread import LockType, allocate_lock, get_ident
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...errors import LedgerUnavailable
from ..model import Lease, NewJob, Submitted
from ..store import steps as step_store
from ..store.steps import Step

if TYPE_CHECKING:
    from ..db.connections import Connections

MAX_BATCH = 1000
"""Jobs or steps in one transaction."""
ARRIVAL_SECONDS = 0.0002
"""The first in the queue waits for the rest as long as another caller arrives within this time."""
UNTIL_WOKEN = -1.0
DECAY = 0.95
"""Decay of the estimated number of submitters per commit. Some are on their way and in no list."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Submission(Generic[Item, Result]):
    """The items of one caller, and the results. Belongs to its caller and to the group commit.

    Args:
        items: What is written: jobs, or steps.
        wake: Wakes the caller.
        can_wait: A thread waits, and calls `check` again after a pause.
        chains_wakeup: That thread wakes the next one as soon as it is woken.
    """

    __slots__ = (
        "can_wait",
        "chains_wakeup",
        "error",
        "is_done",
        "is_leader",
        "is_overdue",
        "is_taken",
        "items",
        "next_to_wake",
        "queue_length",
        "results",
        "wake",
    )

    def __init__(
        self,
        items: Sequence[Item],
        wake: Callable[[], object],
        *,
        can_wait: bool = False,
        chains_wakeup: bool = False,
    ) -> None:
        self.items = items
        self.wake = wake
        self.can_wait = can_wait
        self.chains_wakeup = chains_wakeup
        self.is_leader = False
        """It writes for all. The caller that sees this calls `lead`."""
        self.is_overdue = self.is_taken = self.is_done = False
        self.queue_length = 0
        """When it was last checked."""
        self.next_to_wake: Submission[Item, Result] | None = None
        self.results: list[Result] | None = None
        self.error: BaseException | None = None

    def result(self) -> list[Result]:
        """Return the result of each item, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.results is not None
        return self.results


class GroupCommit(Generic[Item, Result]):
    """Writes submissions together. Threads and event loops may share it, forked children may not.

    Args:
        write: Writes items in one transaction. Returns a result for each.
    """

    def __init__(self, write: Callable[[Sequence[Item]], list[Result]]) -> None:
        self._write = write
        self._lock = allocate_lock()
        self._queue: list[Submission[Item, Result]] = []
        self._is_writing = False
        self._submitter_estimate = 1.0
        self._batch_target = 1

    def submit(self, items: Sequence[Item], /) -> list[Result]:
        """Write items, alone or together with other callers."""
        waits = allocate_lock()
        waits.acquire()
        # Ctrl+C interrupts the main thread, so no other thread may depend on it to be woken.
        chains_wakeup = get_ident() != threading.main_thread().ident
        wake = partial(_release, waits)
        submission: Submission[Item, Result] = Submission(
            items, wake, can_wait=True, chains_wakeup=chains_wakeup
        )
        pause = self.join(submission)
        try:
            while not submission.is_leader and not submission.is_done:
                waits.acquire(timeout=pause)
                if not submission.is_done:
                    pause = self.check(submission)
        except BaseException:
            self._leave(submission)
            raise
        if submission.is_leader:
            self.lead(submission)
        elif submission.chains_wakeup:
            _wake(submission.next_to_wake)
        return submission.result()

    def submit_from_loop(
        self, items: Sequence[Item], leaders: Executor, /
    ) -> asyncio.Future[Submission[Item, Result]]:
        """Write items of a task, alone or together with other callers, without blocking its loop.

        Args:
            items: The items.
            leaders: Runs the leader in a thread, if the submission becomes one.

        Returns:
            The submission when it is done. Its items are written even if the task is cancelled.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Submission[Item, Result]] = loop.create_future()
        context = copy_context()  # it may hold a test's clock

        def finish() -> None:
            if not done.done():  # the caller may have been cancelled
                done.set_result(submission)

        def notify_caller() -> None:
            try:
                loop.call_soon_threadsafe(finish)
            except RuntimeError:
                pass  # the loop is closed, but other callers must still be notified

        def lead() -> None:
            try:
                context.run(self.lead, submission)
            finally:
                notify_caller()

        def wake() -> None:
            if submission.is_done:
                notify_caller()
            elif self.check(submission) == 0:
                leaders.submit(lead)

        submission: Submission[Item, Result] = Submission(items, wake)
        if self.join(submission) == 0:
            leaders.submit(lead)
        return done

    def join(self, submission: Submission[Item, Result], /) -> float:
        """Join the queue.

        Returns:
            Seconds to wait before `check`, unless woken. 0 if the submission is the leader.
        """
        with self._lock:
            self._queue.append(submission)
            return self._elect(submission)

    def check(self, submission: Submission[Item, Result], /) -> float:
        """Check again, after the caller was woken or has waited. Returns the same as `join`.

        Only one call returns 0, so that a submission leads once.
        """
        with self._lock:
            return self._elect(submission)

    def _elect(self, submission: Submission[Item, Result]) -> float:
        """Make the submission the leader, if the batch is full or no other submission arrives."""
        queue = self._queue
        if self._is_writing or submission.is_taken:
            return UNTIL_WOKEN
        if len(queue) < self._batch_target:
            if queue[0] is not submission:
                return UNTIL_WOKEN
            if submission.can_wait and len(queue) > submission.queue_length:
                submission.queue_length = len(queue)
                return ARRIVAL_SECONDS
            submission.is_overdue = True
        self._is_writing = submission.is_leader = True
        return 0.0

    def lead(self, leader: Submission[Item, Result], /) -> None:
        """Write for all in the queue, wake them, and wake the next leader."""
        if not leader.can_wait:
            self._wait_for_batch()
        with self._lock:
            batch = self._take_batch(leader)
        try:
            self._write_batch(batch)
        finally:
            with self._lock:
                self._is_writing = False
                submitters = len(batch) + len(self._queue)
                self._submitter_estimate = (
                    submitters
                    if leader.is_overdue
                    else max(submitters, self._submitter_estimate * DECAY)
                )
                self._batch_target = max(1, round(self._submitter_estimate / 2))
                next_leader = self._queue[0] if self._queue else None
                following = None
                for submission in reversed(batch):
                    submission.is_done = True
                    if submission is not leader:
                        submission.next_to_wake, following = following, submission
            if next_leader is not None:
                next_leader.wake()
            _wake(following)

    def _wait_for_batch(self) -> None:
        """Wait for the leader of an event loop, which could not wait in the queue."""
        length = 0
        while length < len(self._queue) < self._batch_target:
            length = len(self._queue)
            sleep(ARRIVAL_SECONDS)

    def _take_batch(self, leader: Submission[Item, Result]) -> list[Submission[Item, Result]]:
        """Take the leader and as many others from the queue as fit into one transaction."""
        capacity = MAX_BATCH - len(leader.items)
        batch: list[Submission[Item, Result]] = []
        rest: list[Submission[Item, Result]] = []
        for submission in self._queue:
            if submission is not leader:
                capacity -= len(submission.items)
            (batch if submission is leader or capacity >= 0 else rest).append(submission)
        self._queue = rest
        for submission in batch:
            submission.is_taken = True
        return batch

    def _write_batch(self, batch: list[Submission[Item, Result]]) -> None:
        try:
            results = self._write([item for submission in batch for item in submission.items])
        except BaseException as error:
            # An unreachable database fails for all. A retry for each caller would multiply its
            # timeout by the number of callers.
            is_final = not isinstance(error, Exception) or isinstance(error, LedgerUnavailable)
            if len(batch) == 1 or is_final:
                for submission in batch:
                    submission.error = error
                return
            for submission in batch:  # one of them is at fault: write each by itself
                self._write_batch([submission])
            return
        start = 0
        for submission in batch:
            submission.results = results[start : start + len(submission.items)]
            start += len(submission.items)

    def _leave(self, submission: Submission[Item, Result]) -> None:
        """Remove a submission whose caller was interrupted, without an effect on the others."""
        with self._lock:
            if not submission.is_taken and not submission.is_leader:
                self._queue.remove(submission)
            chains_wakeup = submission.chains_wakeup and submission.is_done
            submission.chains_wakeup = chains_wakeup
            next_leader = self._queue[0] if self._queue and not self._is_writing else None
        if submission.is_leader:
            self.lead(submission)
        if chains_wakeup:
            _wake(submission.next_to_wake)
        if next_leader is not None:
            next_leader.wake()


def _release(waits: LockType) -> None:
    try:
        waits.release()
    except RuntimeError:
        pass  # already woken


def _wake(submission: Submission[Any, Any] | None) -> None:
    """Wake a submission and those after it, up to one that wakes the rest."""
    while submission is not None:
        following = submission.next_to_wake
        submission.wake()
        if submission.chains_wakeup:
            return
        submission = following


def write_jobs(
    connections: Connections, notify: Callable[[], None], jobs: Sequence[NewJob], /
) -> list[Submitted]:
    """Write jobs in one transaction, and notify the workers of this process."""
    try:
        submitted = _write_once(connections, jobs)
    except LedgerUnavailable as error:
        if not error.stale:
            raise
        # The idle connection was dead, or leads to a demoted primary. A job is written once for its
        # key, so a retry is safe even if the first attempt was executed.
        submitted = _write_once(connections, jobs)
    notify()
    return submitted


def _write_once(connections: Connections, jobs: Sequence[NewJob]) -> list[Submitted]:
    with connections.group_commit.use() as session:
        return submit_deduplicated(jobs, lambda new: connections.store.submit(session, new))


def submit_deduplicated(
    jobs: Sequence[NewJob], write: Callable[[Sequence[NewJob]], list[Submitted]], /
) -> list[Submitted]:
    """Write each key once, sorted, so that concurrent writers cannot deadlock.

    With sequences, the jobs keep their order, and the store sorts them.
    """
    if len(jobs) == 1:
        return write(jobs)
    first = {job[:2]: job for job in reversed(jobs)}
    has_sequences = any(job.sequence is not None for job in jobs)
    keys = list(dict.fromkeys(job[:2] for job in jobs)) if has_sequences else sorted(first)
    submitted_by_key = dict(zip(keys, write([first[key] for key in keys]), strict=True))
    results = []
    for job in jobs:
        submitted = submitted_by_key[job[:2]]
        results.append(submitted)
        if len(keys) < len(jobs) and submitted.created:
            submitted_by_key[job[:2]] = submitted._replace(created=False)
    return results


class StepCommit:
    """Writes steps that end at the same time in one transaction.

    Threads, event loops and forked children may share it. A forked child gets a group of its own.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._group: tuple[int, GroupCommit[tuple[Lease, Step], bool], Executor] | None = None
        """With the process that made it, and the thread of leaders from event loops."""

    def submit(self, steps: Sequence[tuple[Lease, Step]], /) -> list[bool]:
        """Write steps. Returns whether each was stored, see `step_store.write_steps`."""
        group, _ = self._own_group()
        return group.submit(steps)

    async def asubmit(self, steps: Sequence[tuple[Lease, Step]], /) -> list[bool]:
        """Write steps, as `submit` does. They are written even if the task is cancelled."""
        group, leaders = self._own_group()
        return (await group.submit_from_loop(steps, leaders)).result()

    def _own_group(self) -> tuple[GroupCommit[tuple[Lease, Step], bool], Executor]:
        pid = os.getpid()
        if self._group is None or self._group[0] != pid:
            # One thread is enough: a group has one leader at a time. It starts at first use.
            self._group = (pid, GroupCommit(self._write), ThreadPoolExecutor(1, "redrive-steps"))
        return self._group[1:]

    def _write(self, steps: Sequence[tuple[Lease, Step]], /) -> list[bool]:
        try:
            with self._connections.group_commit.use() as session:
                return step_store.write_steps(session, steps)
        except LedgerUnavailable as error:
            if not error.stale:
                raise
            with self._connections.group_commit.use() as session:  # a step may be written twice
                return step_store.write_steps(session, steps)
