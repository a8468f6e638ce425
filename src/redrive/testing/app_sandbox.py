"""Sandbox: an app on a temporary ledger, with a clock that a test moves and without a worker."""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..app import App
from ..commands.registry import next_run
from ..core.context import IDS, SIMULATION, ActiveScope, Simulation, simulate
from ..errors import Suspended
from ..ledger.db.address import Address
from ..ledger.validation import MAX_PAYLOAD_BYTES
from ..worker.attempt import DurableLayer, attempt_key
from ..worker.outcome import after_deadline, after_failure, after_success
from ..worker.steps import JobSteps
from .clock import FakeClock

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from ..commands.job import Job
    from ..ledger.ledger import Ledger
    from ..ledger.model import Lease, State
    from ..worker.job_type import JobType
    from ..worker.outcome import JobOutcome
    from .stepwise_runner import StepwiseRunner

LEASE_SECONDS = 8.0
MAX_ATTEMPTS = 10_000
"""Attempts of one drain. A job that always asks for a retry would never end."""
MAX_ROWS = 1000


class Sandbox:
    """An app on a new temporary ledger, with a clock that you move. Belongs to the test."""

    def __init__(self, app: App, clock: FakeClock, engine: Engine) -> None:
        self.clock = clock
        """The clock of the test."""
        self.engine = engine
        """SQLAlchemy's engine on the database of the sandbox. Create your own tables there, and
        bind the sessions of your program to it. They can then be passed as `tx=`."""
        self._app = app
        self._worker_number = 1
        self._is_killed = False
        self._next_runs: dict[str, datetime] = {}
        self._partition_runner: StepwiseRunner | None = None

    def drain(self, *, forever: bool = True) -> int:
        """Run all jobs, and move the clock to the next due time until nothing is left.

        Schedules run as far as you have moved the clock.

        Args:
            forever: If False, only run jobs that are due now.

        Returns:
            The number of attempts.
        """
        job_types = {job_type.name: job_type for job_type in self._app.kinds()}
        attempts = 0
        while True:
            self._submit_scheduled()
            lease = self._claim_job(job_types)
            if lease is not None:
                self._run_job(job_types[lease.kind], lease)
            elif not self._run_partition():
                if not forever or not self._advance_to_next_due(job_types):
                    return attempts
                continue
            attempts += 1
            if attempts > MAX_ATTEMPTS:
                retried = "a partition" if lease is None else lease.kind
                raise RuntimeError(
                    f"{MAX_ATTEMPTS:,} attempts, and still something to do: "
                    f"{retried} comes back for ever"
                )

    def kill(self) -> None:
        """Let the worker die in its next attempt, after the work and before it is settled."""
        self._is_killed = True

    @property
    def done(self) -> list[Job[Any]]:
        """Done jobs, oldest first."""
        return self._jobs("done")

    @property
    def dead(self) -> list[Job[Any]]:
        """Dead and blocked jobs, oldest first."""
        return self._jobs("dead")

    def _jobs(self, state: State) -> list[Job[Any]]:
        rows = self._app.ledger.jobs(state, limit=MAX_ROWS)
        rows = sorted(rows, key=lambda row: (row.ended_at or row.created_at, row.id))
        return [self._app.commands.job(row) for row in rows]

    # --- Jobs

    @property
    def _worker_name(self) -> str:
        return f"sandbox-{self._worker_number}"

    def _claim_job(self, job_types: dict[str, JobType]) -> Lease | None:
        ledger = self._app.ledger
        ledger.reap()
        ledger.maintenance.unblock()
        ledger.maintenance.heartbeat(self._worker_name)
        limits = dict.fromkeys(job_types, 1)
        options: dict[str, Any] = {"worker": self._worker_name, "lease": LEASE_SECONDS}
        leases = ledger.claim(limits, total=1, **options)
        if not leases:
            leases = ledger.claim(limits, alone=True, **options)
        return leases[0] if leases else None

    def _run_job(self, job_type: JobType, lease: Lease) -> None:
        if lease.deadline is not None and lease.deadline <= self.clock.now():
            self._app.ledger.settle(after_deadline(lease).settlement)
            return
        in_transaction = job_type.execution == "transaction"
        run = self._run_in_transaction if in_transaction else self._run_alone
        outcome = contextvars.copy_context().run(run, job_type, lease)
        if not self._take_kill() and outcome is not None:
            self._app.ledger.settle(outcome.settlement)

    def _take_kill(self) -> bool:
        """Return whether the worker dies now. The next attempt then has a new worker."""
        is_killed, self._is_killed = self._is_killed, False
        self._worker_number += is_killed
        return is_killed

    def _run_alone(self, job_type: JobType, lease: Lease) -> JobOutcome | None:
        """Run a job. Return None if it sleeps or waits, which is in the ledger then."""
        layer = self._enter_scope(job_type, lease)
        outcome = None
        try:
            result = job_type.run(lease)
            if job_type.execution == "async":
                result = _run_coroutine(result)
            outcome = after_success(lease, result, self._app.ledger.max_payload)
        except Suspended:
            pass
        except Exception as error:
            outcome = after_failure(job_type, lease, error, now=self.clock.now(), draw=_draw())
        job = layer.suspended_job
        if job is None:
            return outcome
        if not self._is_killed:
            job.suspend()
        return None

    def _run_in_transaction(self, job_type: JobType, lease: Lease) -> JobOutcome | None:
        """Run a job in the transaction that settles it. Return None if it is settled, or killed."""
        ledger = self._app.ledger
        try:
            with ledger.begin() as tx:
                self._enter_scope(job_type, lease, tx)
                outcome = after_success(lease, job_type.run(tx, lease), ledger.max_payload)
                if self._is_killed:
                    raise _Killed
                ledger.settle(outcome.settlement, tx=tx)
        except _Killed:
            return None
        except Exception as error:
            return after_failure(job_type, lease, error, now=self.clock.now(), draw=_draw())
        return None

    def _enter_scope(
        self, job_type: JobType, lease: Lease, connection: Connection | None = None
    ) -> DurableLayer:
        seconds = math.inf
        if job_type.settings.attempt_timeout is not None:
            seconds = job_type.settings.attempt_timeout
        if lease.deadline is not None:
            seconds = min(seconds, (lease.deadline - self.clock.now()).total_seconds())
        end = self.clock.monotonic() + seconds
        ledger, now = self._app.ledger, self.clock.now
        layer = DurableLayer(
            job_type, lease, lambda: JobSteps(ledger, lease, now, connection=connection)
        )
        ActiveScope((end, max(1, lease.attempt), layer, attempt_key(lease), None))
        IDS.set(lease.ids)
        return layer

    # --- Datasets

    def _run_partition(self) -> bool:
        """Extract one due partition. Return False if there is none."""
        runner = self._get_partition_runner()
        if runner is None:
            return False
        worker, is_killed = self._worker_name, self._is_killed
        has_run = runner.step(self.clock.now(), worker=worker, is_killed=is_killed)
        if has_run and is_killed:
            self._take_kill()
        return has_run

    def _get_partition_runner(self) -> StepwiseRunner | None:
        extractions = self._app.registrations.extractions()
        if self._partition_runner is None and extractions:
            from .stepwise_runner import StepwiseRunner  # noqa: PLC0415  # only with datasets

            self._partition_runner = StepwiseRunner(self._app.ledger, extractions, _run_coroutine)
        return self._partition_runner

    # --- Time

    def _advance_to_next_due(self, job_types: dict[str, JobType]) -> bool:
        """Move the clock to the next time with something to do. Return False if there is none."""
        ledger = self._app.ledger
        unscheduled = [name for name in job_types if name not in self._next_runs]
        times = [ledger.next_due(unscheduled), ledger.next_due(list(job_types), alone=True)]
        for name in self._next_runs:  # The first attempt of a run waits until the test moves time.
            queued = ledger.jobs("ready", kind=name, limit=MAX_ROWS)
            times += [
                job.due_at for job in queued if job.attempts or not job.key.startswith("cron:")
            ]
        times += [job.lease_until for job in ledger.jobs("leased", limit=MAX_ROWS)]
        letters = ledger.dead_letters(status="pending", limit=MAX_ROWS)
        times += [letter.blocked_until for letter in letters]
        now = self.clock.now()
        runner = self._get_partition_runner()
        if runner is not None:
            times.append(runner.next_due(now))
        due = min((time for time in times if time is not None), default=None)
        if due is None:
            return False
        self.clock.advance(max(0.001, (due - now).total_seconds() + 0.001))
        return True

    def _submit_scheduled(self) -> None:
        """Submit the next run of each scheduled command whose last run is due."""
        for spec in self._app.commands.scheduled:
            due = self._next_runs.get(spec.name)
            if due is None or due <= self.clock.now():
                job = next_run(spec, self.clock.now())
                assert job.due is not None
                self._app.ledger.submit(job)
                self._next_runs[spec.name] = job.due


class _Killed(BaseException):
    """Rolls back the transaction of a worker that dies."""


def _run_coroutine(coroutine: Any) -> Any:
    """Run a coroutine and return its result, also inside an event loop of the test."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "sandbox") as thread:
        return thread.submit(context.run, asyncio.run, coroutine).result()


def _draw() -> float:
    simulation = SIMULATION.get()
    return 0.0 if simulation is None or simulation.draw is None else simulation.draw()


@contextmanager
def sandbox(app: App, /, *, at: datetime | None = None) -> Iterator[Sandbox]:
    """Run an app on a temporary SQLite ledger inside a block. Its own ledger is not opened.

    Time is the clock of the sandbox: `drain` moves it, and so does `box.clock.advance(3600)`. Every
    wait has a random part of 0. It applies to this context only, like `instant`. An app has one
    sandbox at a time.

    The ledger is a file in a temporary folder, which is deleted after the block. Sessions of your
    program on `box.engine` can be passed as `tx=`.

    Args:
        app: The app.
        at: Time at the start, with a time zone. None: now.

    Yields:
        The sandbox.
    """
    clock = FakeClock(at)
    outer = SIMULATION.get()
    faults = None if outer is None else outer.faults
    simulation = Simulation(clock, lambda: 0.0, faults, ledger=True)
    app.registrations.load()
    with (
        # A session that a test has not closed must not fail the end of the block on Windows.
        TemporaryDirectory(prefix="redrive-", ignore_cleanup_errors=True) as folder,
        _open_ledger(Path(folder) / "sandbox.db") as ledger,
        _open_engine(ledger) as engine,
        app.opener.replaced_by(ledger),
        simulate(simulation),
    ):
        app.commands.is_sandboxed = True
        try:
            yield Sandbox(app, clock, engine)
        finally:
            app.commands.is_sandboxed = False
            app.registrations.close()


def _open_ledger(file: Path) -> Ledger:
    from ..ledger.ledger import Ledger  # noqa: PLC0415  # needs SQLAlchemy

    address = Address("sqlite", str(file), f"sqlite:///{file}", sandboxed=True)
    return Ledger(address, migrate=True, max_payload=MAX_PAYLOAD_BYTES)


@contextmanager
def _open_engine(ledger: Ledger) -> Iterator[Engine]:
    """Return an engine for the sessions of the program. It has connections of its own."""
    from sqlalchemy import URL, create_engine, event  # noqa: PLC0415  # optional

    engine = create_engine(URL.create("sqlite", database=ledger.connections.address.target))

    @event.listens_for(engine, "connect")
    def do_not_sync(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA synchronous=OFF")

    try:
        yield engine
    finally:
        engine.dispose()
