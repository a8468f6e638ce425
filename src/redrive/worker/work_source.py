"""Work sources: work beside jobs that a dispatcher claims and settles, such as partitions."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextvars import Context
from datetime import datetime
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from ..core.event_loop_thread import EventLoopThread
from ..errors import LedgerUnavailable
from ..journal.bus import emit
from ..ledger.jobs.pauses import Pauses
from ..ledger.ledger import Ledger
from ..ledger.stats.activity import ActivityRecorder
from .status import describe_problem

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 5.0
"""First and longest pause of a source that fails."""
MAX_LOCK_SECONDS = 2.0
"""How long a source waits for a lock, and at most a quarter of a job's lease."""


class SourceExecutors:
    """Runs the attempts of work sources, and wakes the dispatcher when one has ended.

    Threads may share it.

    Each sync attempt has a thread of its own. Async attempts share an event loop.
    """

    def __init__(self, loop: Callable[[], EventLoopThread], wake: Callable[[], None]) -> None:
        """Prepare.

        Args:
            loop: Returns the event loop. It is called when the first async attempt starts.
            wake: Wakes the dispatcher.
        """
        self._open_loop = loop
        self._loop: EventLoopThread | None = None
        self.wake = wake

    def run_in_thread(self, name: str, work: Callable[[], None], context: Context, /) -> None:
        """Run a sync attempt."""
        threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()

    def run_on_loop(
        self, name: Hashable, work: Callable[[], Coroutine[Any, Any, None]], context: Context, /
    ) -> None:
        """Run an async attempt."""
        if self._loop is None:
            self._loop = self._open_loop()
        loop = self._loop
        loop.call(lambda: loop.start_task(name, work(), context))

    def cancel(self, name: Hashable, /) -> None:
        """Cancel an async attempt."""
        if self._loop is not None:
            self._loop.cancel([name])


class WorkSource(Protocol):
    """Work beside jobs.

    Its methods are called in the ledger thread; other threads may read `counts`.
    """

    @property
    def name(self) -> str:
        """For log records."""

    @property
    def running(self) -> int:
        """Number of attempts that run, or are not settled yet."""

    @property
    def running_async(self) -> int:
        """How many of them can be cancelled."""

    @property
    def has_results(self) -> bool:
        """Whether an attempt has ended that is not settled yet."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Running work, and ended work by outcome. Any thread may read it."""

    def attach(
        self,
        worker: str,
        ledger: Ledger,
        executors: SourceExecutors,
        /,
        *,
        activity: ActivityRecorder,
        lock_seconds: float,
    ) -> None:
        """Set what the worker provides, before the first turn.

        Args:
            worker: Name of the worker, for leases.
            ledger: For the ledger thread only. The connections of jobs may all be in use.
            executors: Run the attempts.
            activity: Counts ended attempts for the charts.
            lock_seconds: How long a transaction may wait for a lock. The ledger thread renews the
                leases of jobs, so it must not wait for a suspended process that holds a lock.
        """

    def turn(self, now: datetime, /, *, is_stopping: bool = False) -> float:
        """Settle ended work, renew running work, and claim more if there is capacity.

        Args:
            now: By the ledger's clock.
            is_stopping: Claim nothing: the worker stops.

        Returns:
            Seconds until the next turn if nothing happens before.
        """

    def release(self, now: datetime, /) -> None:
        """Release unfinished work. No turn follows."""


class FailingTasks:
    """Work sources and background tasks that fail, until they succeed. Threads may share it.

    While the ledger is away, all of them fail, and each runs again at its own time. When the ledger
    is back, their errors about the ledger are over.
    """

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}
        self._by_ledger: set[str] = set()
        """Tasks that failed because the ledger was away."""

    def on_error(self, task: str, error: Exception, /) -> bool:
        """Note that a task failed. Return False if it failed before because of the ledger, too."""
        was_by_ledger = task in self._by_ledger
        if isinstance(error, LedgerUnavailable):
            self._by_ledger.add(task)
        else:
            self._by_ledger.discard(task)
        self._problems[task] = describe_problem(error)
        return not (was_by_ledger and task in self._by_ledger)

    def on_success(self, task: str, /) -> None:
        """Note that a task succeeded."""
        self._problems.pop(task, None)
        self._by_ledger.discard(task)

    def on_ledger_back(self) -> None:
        """Forget errors about the ledger. A task that fails again is noted again."""
        for task in tuple(self._by_ledger):
            self.on_success(task)

    def problems(self, *, is_ledger_away: bool) -> dict[str, str]:
        """Return the error of each failing task. A ledger outage is reported once."""
        hidden = self._by_ledger if is_ledger_away else ()
        return {
            task: problem for task, problem in self._problems.copy().items() if task not in hidden
        }


@runtime_checkable
class RunsJobs(Protocol):
    """A work source that runs jobs of another engine."""

    @property
    def running(self) -> int:
        """Number of attempts that run."""

    @property
    def job_counts(self) -> Counter[str]:
        """Ended attempts by outcome. Any thread may read it."""

    @property
    def engine_report(self) -> Mapping[str, Any] | None:
        """State of the engine, stored with the heartbeat. None: not known yet."""

    def set_pauses(self, pauses: Pauses, /) -> None:
        """Set the pauses by hand: no job of a paused job type starts."""


class SourceTurns:
    """The turns of one work source. A source that fails pauses, and does not hold up the jobs.

    Used by the ledger thread only.
    """

    def __init__(self, source: WorkSource, failing: FailingTasks) -> None:
        """Prepare.

        Args:
            source: The source.
            failing: Notes the error of the source while it fails.
        """
        self.source = source
        self._failing = failing
        self._pause = FIRST_PAUSE_SECONDS
        self._is_paused = False
        self.next_turn = 0.0
        """On the monotonic clock."""

    def is_due(self, now: float, /) -> bool:
        """Return whether a turn has something to do."""
        return now >= self.next_turn or (self.source.has_results and not self._is_paused)

    def run(self, now: datetime, /, *, is_stopping: bool) -> None:
        """Run one turn."""
        self._guard(lambda: self.source.turn(now, is_stopping=is_stopping))

    def release(self, now: datetime, /) -> bool:
        """Release unfinished work. Return False if that failed."""
        self._guard(lambda: self.source.release(now))
        return not self._is_paused

    def _guard(self, act: Callable[[], float | None]) -> None:
        try:
            wait = act()
        except Exception as error:
            if self._failing.on_error(self.source.name, error):
                fields = {"error": str(error), "error_class": type(error).__name__}
                emit("chore_failed", {"operation": self.source.name, **fields})
            self._is_paused = True
            self.next_turn = monotonic() + self._pause
            self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
        else:
            self._failing.on_success(self.source.name)
            self._is_paused, self._pause = False, FIRST_PAUSE_SECONDS
            self.next_turn = monotonic() + (wait or 0.0)


class WorkSources:
    """All work sources of a worker. Used by the ledger thread only."""

    def __init__(self, sources: Sequence[WorkSource], failing: FailingTasks) -> None:
        self._turns = [SourceTurns(source, failing) for source in sources]
        self._runners = [source for source in sources if isinstance(source, RunsJobs)]

    @property
    def running(self) -> int:
        """Number of attempts that run, or are not settled yet."""
        return sum(turns.source.running for turns in self._turns)

    @property
    def running_async(self) -> int:
        """How many of them can be cancelled."""
        return sum(turns.source.running_async for turns in self._turns)

    @property
    def next_turn(self) -> float:
        """When the next turn is needed if nothing happens before, on the monotonic clock."""
        return min((turns.next_turn for turns in self._turns), default=math.inf)

    @property
    def engine_report(self) -> Mapping[str, Any] | None:
        """State of the engine that runs jobs beside the ledger, if there is one."""
        reports = [source.engine_report for source in self._runners]
        return reports[0] if reports else None

    def set_pauses(self, pauses: Pauses, /) -> None:
        """Set the pauses by hand."""
        for source in self._runners:
            source.set_pauses(pauses)

    def is_due(self, now: float, /) -> bool:
        """Return whether a source needs a turn now."""
        return any(turns.is_due(now) for turns in self._turns)

    def run_due(self, now: datetime, /, *, is_stopping: bool) -> None:
        """Run the turns that are due."""
        for turns in self._turns:
            if turns.is_due(monotonic()):
                turns.run(now, is_stopping=is_stopping)

    def release(self, now: datetime, /) -> bool:
        """Release unfinished work. Return False if that failed."""
        released = [turns.release(now) for turns in self._turns]
        return all(released)
