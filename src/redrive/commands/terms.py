"""Terms: what `@app.command(...)` was told of one function, checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from ..core.context import clock_around
from ..core.key import Key, KeyOf
from ..core.seconds import real, whole_number
from ..engine.retry import RetryLike
from ..engine.settings import Settings
from ..ledger.record import NewJob
from ..ledger.validation import MAX_KIND
from ..ledger.validation import name as printable
from ..worker.job_type import Execution, durable_settings, execution_of, qualified_name
from .cron import Cron
from .envelope import VERSION, Envelope
from .options import Options, urgency

Spent = Literal["dead", "blocked"]


DAY = 86_400.0
FIRING = "redrive-cron"
"""The header of a scheduled job: the line it was made by."""


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What a command was told. Immutable: anything may share it."""

    name: str
    envelope: Envelope
    execution: Execution
    settings: Settings
    concurrency: int | None
    rate: float | None
    priority: int
    spent: Spent
    cron: Cron | None
    place: str
    """Where the function stands, for messages."""

    def new_job(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> NewJob:
        """A call of it, as a job to be submitted. TypeError where the arguments are not those of the function."""
        envelope = self.envelope
        return NewJob(
            kind=self.name,
            key=envelope.key(args, kwargs) if options.key is None else options.key,
            payload=envelope.payload(args, kwargs),
            priority=self.priority if options.priority is None else options.priority,
            delay=options.delay,
            due=options.due,
            max_attempts=self.settings.max_attempts,
            # What is the same work stays so for ever; a key that is nobody else's need not be remembered.
            keep=None if envelope.keyed or options.key is not None else DAY,
            deadline=options.deadline,
            version=VERSION,
        )

    @staticmethod
    def due(job: NewJob, /) -> datetime:
        """When it is due, by the clock here; the ledger's is what counts."""
        return clock_around().now() + timedelta(seconds=job.delay) if job.due is None else job.due


def terms(
    name: str, fn: Callable[..., Any], /, *, key: KeyOf | None, retry: RetryLike | None, concurrency: int | None,
    rate: float | None, priority: int, spent: Spent, cron: str | None, timezone: str, in_transaction: bool,
) -> Terms:  # fmt: skip
    """Everything that was told, checked; TypeError or ValueError says what is wrong with it."""
    execution = _execution(name, fn, in_transaction)
    skip = int(in_transaction)
    if spent not in ("dead", "blocked"):
        raise ValueError(f"spent= must be 'dead' or 'blocked', not {spent!r}")
    return Terms(
        name=name,
        envelope=Envelope(name, fn, key, skip=skip),
        execution=execution,
        settings=durable_settings(name, retry),
        concurrency=None if concurrency is None else whole_number("concurrency", concurrency),
        rate=None if rate is None else _rate(rate),
        priority=urgency(priority),
        spent=spent,
        cron=_cron(name, fn, cron, timezone, key, skip),
        place=qualified_name(fn),
    )


def named(name: object, /) -> None:
    """TypeError or ValueError says what is wrong with a command's name."""
    if callable(name):
        raise TypeError('a command needs a name, which the ledger stores; write @app.command("receipts.send")')
    printable("a command's name", name, MAX_KIND)
    Key("command", "", "x", str(name))  # it is part of the keys of those that have none


def _execution(name: str, fn: Callable[..., Any], in_transaction: bool) -> Execution:
    execution = execution_of(name, fn, in_transaction=in_transaction)
    if execution == "transaction":
        first = next(iter(inspect.signature(fn).parameters.values()), None)
        if first is None or first.kind > first.POSITIONAL_OR_KEYWORD:
            raise TypeError(
                f"{name}: with in_transaction=True the first parameter of {qualified_name(fn)} is the connection; it has no "
                f"parameters"
            )
    return execution


def _rate(rate: object) -> float:
    given = real("rate", rate)
    if given <= 0:
        raise ValueError(f"rate must be a number of starts per second, above 0: {rate!r}")
    return given


def _cron(name: str, fn: Callable[..., Any], line: str | None, zone: str, key: object, skip: int) -> Cron | None:
    if line is None:
        if zone != "UTC":
            raise TypeError(f"{name}: timezone= needs cron=; pass both, or remove timezone=")
        return None
    if skip:
        raise TypeError(f"{name}: cron= and in_transaction= cannot be combined; open a transaction inside the function")
    if key is not None:
        raise TypeError(f"{name}: a scheduled command gets its key from its name and its time; remove key=")
    needs = [
        one.name
        for one in inspect.signature(fn).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if needs:
        raise TypeError(
            f"{name}: a scheduled command is called without arguments; give these parameters defaults: {', '.join(needs)}"
        )
    return Cron(line, zone)
