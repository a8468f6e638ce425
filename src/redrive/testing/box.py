"""Sandbox: an app on a ledger in memory, a clock that a test moves, and no worker but the test's own."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..app import App
from ..core.context import IDS, SIMULATION, ActiveScope, Simulation, simulated
from ..ledger.open import open_ledger
from .clock import FakeClock

if TYPE_CHECKING:
    from ..commands.job import Job
    from ..ledger.record import Lease
    from ..ledger.state import State
    from ..worker.job_type import JobType
    from ..worker.outcome import Outcome
    from .partitions import Stepped

LEASE = 8.0
MOST = 10_000
"""Attempts in one drain: what asks to come back for ever would never end."""
NAMED = 1000


class Sandbox:
    """An app on a new ledger in memory, with a clock that you move. Belongs to the code of the test."""

    def __init__(self, app: App, clock: FakeClock) -> None:
        self.clock = clock
        self._app = app
        self._worker = 1
        self._killed = False
        self._schedules: dict[str, Any] = {}
        self._stepped: Stepped | None = None

    def drain(self, *, forever: bool = True) -> int:
        """Run all jobs, and move the clock to the next due time until nothing is left.

        Schedules run as far as you have moved the clock.

        Args:
            forever: If False, only run jobs that are due now.

        Returns:
            The number of attempts.
        """
        kinds = {kind.name: kind for kind in self._app.kinds()}
        made = 0
        while True:
            self._fire()
            lease = self._next(kinds)
            if lease is not None:
                made += 1
                if made > MOST:
                    raise RuntimeError(f"{MOST:,} attempts, and still something to do: {lease.kind} comes back for ever")
                self._attempt(kinds[lease.kind], lease)
            elif self._extracted():
                made += 1
                if made > MOST:
                    raise RuntimeError(f"{MOST:,} attempts, and still something to do: a partition comes back for ever")
            elif not forever or not self._pass_time(kinds):
                return made

    def kill(self) -> None:
        """Let the worker die in its next attempt, as by SIGKILL: after the work, before it is settled."""
        self._killed = True

    @property
    def done(self) -> list[Job[Any]]:
        """Done jobs, oldest first."""
        return self._jobs("done")

    @property
    def dead(self) -> list[Job[Any]]:
        """Dead and blocked jobs, oldest first."""
        return self._jobs("dead")

    def _jobs(self, state: State) -> list[Job[Any]]:
        rows = self._app.ledger.jobs(state, limit=NAMED)
        return [self._app.commands.job(row) for row in sorted(rows, key=lambda row: (row.ended_at or row.created_at, row.id))]

    # ---- the worker ----

    @property
    def _name(self) -> str:
        return f"sandbox-{self._worker}"

    def _next(self, kinds: dict[str, JobType]) -> Lease | None:
        ledger = self._app.ledger
        ledger.reap()
        ledger.unblock()
        ledger.beat(self._name)
        one = dict.fromkeys(kinds, 1)
        found = ledger.claim(one, worker=self._name, lease=LEASE, total=1) or ledger.claim(
            one, worker=self._name, lease=LEASE, alone=True
        )
        return found[0] if found else None

    def _attempt(self, kind: JobType, lease: Lease) -> None:
        from ..worker.outcome import after_deadline  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

        if lease.deadline is not None and lease.deadline <= self.clock.now():
            self._app.ledger.settle(after_deadline(lease).settlement)
            return
        context = contextvars.copy_context()
        if kind.execution == "transaction":
            outcome = context.run(self._in_transaction, kind, lease)
        else:
            outcome = context.run(self._made, kind, lease)
        if self._killed:
            self._killed = False
            self._worker += 1
        elif outcome is not None:
            self._app.ledger.settle(outcome.settlement)

    def _made(self, kind: JobType, lease: Lease) -> Outcome:
        from ..worker.outcome import after_failure, after_success  # noqa: PLC0415  # likewise

        self._enter(kind, lease)
        try:
            result = kind.run(lease)
            if kind.execution == "async":
                result = _awaited(result)
        except Exception as error:
            return after_failure(kind, lease, error, now=self.clock.now(), draw=_draw())
        return after_success(lease, result, self._app.ledger.max_payload)

    def _in_transaction(self, kind: JobType, lease: Lease) -> Outcome | None:
        """None: it is settled already, with what it wrote."""
        from ..worker.outcome import after_failure, after_success  # noqa: PLC0415  # likewise

        self._enter(kind, lease)
        try:
            with self._app.ledger.begin() as tx:
                outcome = after_success(lease, kind.run(tx, lease), self._app.ledger.max_payload)
                if self._killed:
                    raise _Killed
                self._app.ledger.settle(outcome.settlement, tx=tx)
        except _Killed:
            return None
        except Exception as error:
            return after_failure(kind, lease, error, now=self.clock.now(), draw=_draw())
        return None

    def _enter(self, kind: JobType, lease: Lease) -> None:
        from ..worker.attempt import DurableLayer, attempt_key  # noqa: PLC0415  # likewise

        own = kind.settings.attempt_timeout
        left = math.inf if lease.deadline is None else (lease.deadline - self.clock.now()).total_seconds()
        seconds = min(math.inf if own is None else own, left)
        ActiveScope(
            (self.clock.monotonic() + seconds, max(1, lease.attempt), DurableLayer(kind, lease), attempt_key(lease), None)
        )
        IDS.set(lease.ids)

    # ---- datasets ----

    def _extracted(self) -> bool:
        """Extract one partition that is due; False: there is none."""
        steps = self._steps()
        if steps is None:
            return False
        killed = self._killed
        found = steps.step(self.clock.now(), worker=self._name, killed=killed)
        if found and killed:
            self._killed = False
            self._worker += 1
        return found

    def _steps(self) -> Stepped | None:
        if self._stepped is None and len(self._app.datasets):
            from .partitions import Stepped  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

            self._stepped = Stepped(self._app.ledger, list(self._app.datasets), _awaited)
        return self._stepped

    # ---- time ----

    def _pass_time(self, kinds: dict[str, JobType]) -> bool:
        """To the next moment at which there is something to do; False: there is nothing any more."""
        ledger = self._app.ledger
        plain = [name for name in kinds if name not in self._schedules]
        moments = [ledger.next_due(plain), ledger.next_due(list(kinds), alone=True)]
        for name in self._schedules:  # a firing that has not begun waits for the test to move the clock
            waiting = ledger.jobs("ready", kind=name, limit=NAMED)
            moments += [job.due_at for job in waiting if job.attempts or not job.key.startswith("cron:")]
        moments += [job.lease_until for job in ledger.jobs("leased", limit=NAMED)]
        moments += [letter.blocked_until for letter in ledger.dead_letters(status="pending", limit=NAMED)]
        now = self.clock.now()
        steps = self._steps()
        moments.append(None if steps is None else steps.next(now))
        coming = [moment for moment in moments if moment is not None]
        if not coming:
            return False
        self.clock.advance(max(0.001, (min(coming) - now).total_seconds() + 0.001))
        return True

    def _fire(self) -> None:
        """Scheduled commands, up to the moment it is."""
        from ..commands.schedule import firing  # noqa: PLC0415  # likewise

        for terms in self._app.commands.scheduled:
            due: datetime | None = self._schedules.get(terms.name)
            if due is None or due <= self.clock.now():
                job = firing(terms, self.clock.now())
                self._app.ledger.submit(job)
                self._schedules[terms.name] = job.due


class _Killed(BaseException):
    """Where a worker would be gone: rolls its transaction back."""


def _awaited(coroutine: Any) -> Any:
    """What it gives, also where the test has an event loop itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    ended: list[Any] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            ended.append((context.run(asyncio.run, coroutine), None))
        except BaseException as error:
            ended.append((None, error))

    thread = threading.Thread(target=run, name="sandbox")
    thread.start()
    thread.join()
    result, error = ended[0]
    if error is not None:
        raise error
    return result


def _draw() -> float:
    stage = SIMULATION.get()
    return 0.0 if stage is None or stage.draw is None else stage.draw()


@contextmanager
def sandbox(app: App, /) -> Iterator[Sandbox]:
    """Run an app on a ledger in memory inside a block. Its own ledger is not opened.

    Time is the clock of the sandbox: `drain` moves it, and so does `box.clock.advance(3600)`. Every
    wait has a random part of 0. It applies to this context only, like `instant`. An app has one
    sandbox at a time.

    Args:
        app: The app.

    Yields:
        The sandbox.
    """
    clock = FakeClock()
    around = SIMULATION.get()
    stage = Simulation(clock, lambda: 0.0, None if around is None else around.faults, ledger=True)
    app.load()
    with open_ledger("sqlite://", migrate=True) as ledger, app.on_ledger(ledger), simulated(stage):
        app.commands.stepped = True
        try:
            yield Sandbox(app, clock)
        finally:
            app.commands.stepped = False
