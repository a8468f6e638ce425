"""CommandRegistry: the commands of an app by name, how workers run them, and when they are due.

The next run of a scheduled command is a job in the ledger, before it is due.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from ..core.codec import from_bytes
from ..core.key import Key
from ..ledger.aio import AsyncLedger
from ..ledger.jobs import pauses
from ..ledger.ledger import Ledger
from ..ledger.model import Job as Row
from ..ledger.model import Lease, NewJob, Submitted
from ..worker.job_type import JobType
from .command import BoundCommand, Command, make_command
from .job import Job, ResultDecoder
from .options import CommandOptions
from .spec import CRON_HEADER, ENVELOPE_VERSION, CommandSpec, check_name

if TYPE_CHECKING:
    import sqlalchemy

    from .engine import CommandEngine


class JsonDecoder:
    """Decodes results of jobs that no command of this app has."""

    def decode_result(self, result: bytes | None, /) -> Any:
        """Return the JSON value, or the bytes if they are not JSON."""
        try:
            return None if result is None else from_bytes(result)
        except ValueError:
            return result


class CommandRegistry:
    """The commands of an app. Threads and forked children may share it.

    Args:
        ledger: Returns the ledger of the app.
    """

    def __init__(self, ledger: Callable[[], Ledger], /) -> None:
        self._ledger = ledger
        self.engine: CommandEngine | None = None
        """Another engine that runs commands."""
        self._specs: dict[str, CommandSpec] = {}
        self._job_types: dict[str, JobType] = {}
        self._aio: tuple[int, AsyncLedger] | None = None
        self.is_sandboxed = False
        """Whether the app is in a test without a worker."""

    @property
    def ledger(self) -> Ledger:
        """The ledger of the app, opened at first use."""
        return self._ledger()

    @property
    def aio(self) -> AsyncLedger:
        """The ledger for async code, opened at first use. It has one thread."""
        ledger = self._ledger()
        aio = self._aio
        if aio is None or aio[0] != os.getpid() or aio[1].ledger is not ledger:
            self.close()
            aio = self._aio = (os.getpid(), AsyncLedger(ledger))
        return aio[1]

    def engine_of(self, spec: CommandSpec, /) -> CommandEngine | None:
        """Return the engine that runs a command. None: the ledger, as for all in a sandbox."""
        engine = self.engine
        if engine is None or self.is_sandboxed or not engine.is_used_by(spec):
            return None
        return engine

    def decorator(
        self, name: str, options: CommandOptions, /
    ) -> Callable[[Callable[..., Any]], Command[..., Any]]:
        """Return the decorator `@app.command(name, ...)`."""
        check_name(name)  # Now, because a bare `@app.command` never calls the decorator.

        def decorate(fn: Callable[..., Any]) -> Command[..., Any]:
            spec = CommandSpec.of(name, fn, options)
            self._add(spec, fn)
            return make_command(self, fn, spec)

        return decorate

    def _add(self, spec: CommandSpec, fn: Callable[..., Any]) -> None:
        """Register a command. Raise ValueError if its name is taken."""
        other = self._specs.get(spec.name)
        if other is not None and not hasattr(sys, "ps1"):  # A prompt may define a function again.
            raise ValueError(
                f"command {spec.name!r} is already registered by {other.place}; "
                f"use another name for {spec.place}"
            )
        self._specs[spec.name] = spec
        self._job_types[spec.name] = job_type_of(spec, fn)

    def submit_many(self, commands: Sequence[BoundCommand[Any]], tx: Any, /) -> list[Job[Any]]:
        """Submit bound commands in one transaction: all of them or none."""
        for command in commands:
            if not isinstance(command, BoundCommand):
                raise TypeError(
                    "submit_many takes results of `command.bind(...)`, "
                    f"not {type(command).__name__}: {command!r}"
                )
            if command.gateway is not self:
                raise ValueError(f"{command.job.kind} is a command of another App; submit it there")
        submitted = self.ledger.submit_many([command.job for command in commands], tx=tx)
        return [command.handle(job) for command, job in zip(commands, submitted, strict=True)]

    def job(self, row: Row, /) -> Job[Any]:
        """Return the handle to a stored job. It may be of another app."""
        submitted = Submitted(row.id, row.kind, row.key, row.state, False, row.request_hash)
        spec = self._specs.get(row.kind)
        decoder: ResultDecoder = JsonDecoder() if spec is None else spec.envelope
        engine = None if spec is None else self.engine_of(spec)
        return Job(self, decoder, submitted, row.due_at, engine)

    def job_type(self, name: str, /) -> JobType:
        """Return how a worker runs a command."""
        return self._job_types[name]

    def payload_problem(self, name: str, payload: bytes, /) -> str | None:
        """Return why a payload does not fit a command. None if it fits, or without a command."""
        spec = self._specs.get(name)
        return None if spec is None else spec.envelope.payload_problem(payload)

    def place(self, name: str, /) -> str | None:
        """Return where the command of this name is defined, for messages."""
        spec = self._specs.get(name)
        return None if spec is None else f"the command {spec.place}"

    def select_job_types(
        self,
        only: Collection[str] | None,
        handler_types: Sequence[JobType] = (),
        datasets: Collection[str] = (),
        /,
    ) -> list[JobType]:
        """Return the job types of a worker: those of commands and handlers.

        Args:
            only: Names of job types and datasets. Default: all job types.
            handler_types: Job types of event handlers.
            datasets: Names of datasets, which have no job type.

        Raises:
            ValueError: `only` has an unknown name, or nothing is registered.
        """
        job_types = self._job_types | {job_type.name: job_type for job_type in handler_types}
        if isinstance(only, str):
            raise TypeError(f"only must be a collection of names, not one text; pass [{only!r}]")
        for name in only or ():
            if name not in job_types and name not in datasets:
                registered = ", ".join(sorted([*job_types, *datasets])) or "no names"
                raise ValueError(f"{name!r} is not registered; registered: {registered}")
        if not job_types and not datasets:
            raise ValueError(
                "no commands and no handlers are registered; "
                "list their modules in App(include=[...])"
            )
        return [job_type for name, job_type in job_types.items() if only is None or name in only]

    @property
    def names(self) -> list[str]:
        """The names of the registered commands."""
        return list(self._specs)

    def __contains__(self, name: object, /) -> bool:
        """Return whether a command has this name."""
        return name in self._specs

    @property
    def scheduled(self) -> list[CommandSpec]:
        """The commands with a schedule."""
        return [spec for spec in self._specs.values() if spec.cron is not None]

    def spec(self, name: str, /) -> CommandSpec | None:
        """Return the checked options of a command."""
        return self._specs.get(name)

    def close(self) -> None:
        """Stop the thread of `aio`. It starts again at the next use."""
        aio, self._aio = self._aio, None
        if aio is not None and aio[0] == os.getpid():
            aio[1].close()


def job_type_of(spec: CommandSpec, fn: Callable[..., Any], /) -> JobType:
    """Return how a worker runs a command."""
    envelope = spec.envelope

    def run_sync(lease: Lease) -> bytes | None:
        args, kwargs = envelope.decode_arguments(lease)
        if _is_of_old_schedule(spec, lease):
            return None
        return envelope.encode_result(fn(*args, **kwargs))

    async def run_async(lease: Lease) -> bytes | None:
        args, kwargs = envelope.decode_arguments(lease)
        if _is_of_old_schedule(spec, lease):
            return None
        return envelope.encode_result(await fn(*args, **kwargs))

    def run_in_transaction(connection: sqlalchemy.Connection, lease: Lease) -> bytes | None:
        args, kwargs = envelope.decode_arguments(lease)
        return envelope.encode_result(fn(connection, *args, **kwargs))

    runs: dict[str, Callable[..., Any]] = {
        "thread": run_sync,
        "process": run_sync,
        "async": run_async,
        "transaction": run_in_transaction,
    }
    return JobType(
        name=spec.name,
        run=runs[spec.execution],
        execution=spec.execution,
        settings=spec.settings,
        concurrency=spec.concurrency,
        rate=spec.rate,
        on_exhausted=spec.on_exhausted,
        fn=fn,
        memory_limit=spec.memory_limit,
        tenants=spec.tenant_limit,
        is_sequenced=spec.sequence is not None,
    )


def _is_of_old_schedule(spec: CommandSpec, lease: Lease) -> bool:
    """Return whether a run was submitted before the schedule in the code was changed."""
    schedule = lease.headers.get(CRON_HEADER)
    return schedule is not None and schedule != str(spec.cron)


KEEP_SECONDS = 7 * 86_400.0
"""How long the key of a scheduled run is stored."""


class CommandScheduleTask:
    """A background task that submits the next run of each scheduled command.

    The key of a run has its time, so any number of workers submit it once. A run that was due while
    no worker was online starts with the next worker, once for all missed times. The same holds for
    a schedule that was paused by hand. Belongs to the thread of the task.
    """

    name = "schedule"
    every = 2.0

    def __init__(self, ledger: Ledger, scheduled: Sequence[CommandSpec], /) -> None:
        self._ledger = ledger
        self._scheduled = scheduled
        self._next_due: dict[str, datetime] = {}

    @classmethod
    def of(
        cls, ledger: Ledger, scheduled: Sequence[CommandSpec], job_types: Sequence[JobType], /
    ) -> list[Self]:
        """Return the task of a worker with these job types, if any of them is scheduled."""
        names = {job_type.name for job_type in job_types}
        specs = [spec for spec in scheduled if spec.name in names]
        return [cls(ledger, specs)] if specs else []

    def do(self, now: datetime, /) -> None:
        """Submit the next run of each command whose last submitted run is due."""
        jobs = [
            next_run(spec, now)
            for spec in self._scheduled
            if spec.name not in self._next_due or self._next_due[spec.name] <= now
        ]
        if not jobs:
            return
        for name in pauses.submit_runs(self._ledger.connections, jobs):
            (due,) = (job.due for job in jobs if job.kind == name)
            assert due is not None
            self._next_due[name] = due


def next_run(spec: CommandSpec, now: datetime, /) -> NewJob:
    """Return the job of the next run after this time. Its key has the name and the time."""
    assert spec.cron is not None
    due = spec.cron.after(now)
    return NewJob(
        kind=spec.name,
        key=str(Key("cron", "", f"{due:%Y%m%dT%H%M%SZ}", spec.name)),
        payload=spec.envelope.encode_arguments((), {}),
        priority=spec.priority,
        due=due,
        max_attempts=spec.settings.max_attempts,
        keep=KEEP_SECONDS,
        ids={},
        headers={CRON_HEADER: str(spec.cron)},
        version=ENVELOPE_VERSION,
        keeps_cancelled=True,  # each worker that starts submits the next run again
    )
