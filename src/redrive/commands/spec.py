"""CommandSpec: the checked options of one command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.key import Key
from ..core.seconds import real, whole_number
from ..engine.settings import RetrySettings
from ..ledger.model import NewJob
from ..ledger.validation import MAX_KIND_BYTES
from ..ledger.validation import check_name as check_printable
from ..worker.job_type import Execution, durable_settings, execution_of, qualified_name
from .cron import Cron
from .envelope import ENVELOPE_VERSION, Envelope
from .options import CommandOptions, ExhaustedState, SubmitOptions, check_priority

UNIQUE_KEY_SECONDS = 86_400.0
"""How long a generated key is stored. No other submission can have it."""
CRON_HEADER = "redrive-cron"
"""Header of a scheduled job: the schedule that created it."""


@dataclass(frozen=True, slots=True, eq=False)
class CommandSpec:
    """The checked options of one command. Immutable: anything may share it.

    Attributes:
        name: Name of the job type.
        envelope: Encodes arguments and results.
        execution: Where the function runs.
        settings: Policy of the durable attempts.
        concurrency: Maximum number of running jobs, over all workers.
        rate: Maximum number of starts in a second, over all workers.
        priority: From -2 (first) to 2 (last).
        on_exhausted: State of a job without attempts left.
        cron: The schedule, if there is one.
        place: Where the function is defined, for messages.
    """

    name: str
    envelope: Envelope
    execution: Execution
    settings: RetrySettings
    concurrency: int | None
    rate: float | None
    priority: int
    on_exhausted: ExhaustedState
    cron: Cron | None
    place: str

    @classmethod
    def of(cls, name: str, fn: Callable[..., Any], options: CommandOptions, /) -> CommandSpec:
        """Check the options of a command.

        Raises:
            TypeError: An option does not fit the function, or another option.
            ValueError: An option has an invalid value.
        """
        execution = _check_execution(name, fn, options.in_transaction)
        if options.spent not in ("dead", "blocked"):
            raise ValueError(f"spent= must be 'dead' or 'blocked', not {options.spent!r}")
        concurrency = options.concurrency
        return cls(
            name=name,
            envelope=Envelope(name, fn, options.key, skip=int(options.in_transaction)),
            execution=execution,
            settings=durable_settings(name, options.retry),
            concurrency=None if concurrency is None else whole_number("concurrency", concurrency),
            rate=None if options.rate is None else _check_rate(options.rate),
            priority=check_priority(options.priority),
            on_exhausted=options.spent,
            cron=_check_cron(name, fn, options),
            place=qualified_name(fn),
        )

    def new_job(
        self, options: SubmitOptions, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> NewJob:
        """Return the job of a call. Raise TypeError if the arguments do not fit the function."""
        envelope = self.envelope
        return NewJob(
            kind=self.name,
            key=envelope.key(args, kwargs) if options.key is None else options.key,
            payload=envelope.encode_arguments(args, kwargs),
            priority=self.priority if options.priority is None else options.priority,
            delay=options.delay,
            due=options.due,
            max_attempts=self.settings.max_attempts,
            keep=None if envelope.has_key or options.key is not None else UNIQUE_KEY_SECONDS,
            deadline=options.deadline,
            version=ENVELOPE_VERSION,
        )


def check_name(name: object, /) -> None:
    """Raise TypeError or ValueError if the name of a command is not valid."""
    if callable(name):
        raise TypeError(
            'a command needs a name, which the ledger stores; write @app.command("receipts.send")'
        )
    check_printable("a command's name", name, MAX_KIND_BYTES)
    Key("command", "", "x", str(name))  # The name is a part of generated keys.


def _check_execution(name: str, fn: Callable[..., Any], in_transaction: bool) -> Execution:
    execution = execution_of(name, fn, in_transaction=in_transaction)
    if execution == "transaction":
        first = next(iter(inspect.signature(fn).parameters.values()), None)
        if first is None or first.kind > first.POSITIONAL_OR_KEYWORD:
            raise TypeError(
                f"{name}: with in_transaction=True the first parameter of {qualified_name(fn)} is "
                "the connection; it has no parameters"
            )
    return execution


def _check_rate(rate: object) -> float:
    starts_per_second = real("rate", rate)
    if starts_per_second <= 0:
        raise ValueError(f"rate must be a number of starts per second, above 0: {rate!r}")
    return starts_per_second


def _check_cron(name: str, fn: Callable[..., Any], options: CommandOptions) -> Cron | None:
    if options.cron is None:
        if options.timezone != "UTC":
            raise TypeError(f"{name}: timezone= needs cron=; pass both, or remove timezone=")
        return None
    if options.in_transaction:
        raise TypeError(
            f"{name}: cron= and in_transaction= cannot be combined; "
            "open a transaction inside the function"
        )
    if options.key is not None:
        raise TypeError(
            f"{name}: a scheduled command gets its key from its name and its time; remove key="
        )
    required = [
        parameter.name
        for parameter in inspect.signature(fn).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if required:
        raise TypeError(
            f"{name}: a scheduled command is called without arguments; "
            f"give these parameters defaults: {', '.join(required)}"
        )
    return Cron(options.cron, options.timezone)
