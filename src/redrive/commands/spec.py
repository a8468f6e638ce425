"""CommandSpec: the checked options of one command.

An envelope encodes the arguments and the result of a command for the ledger.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from secrets import token_hex
from time import time_ns
from typing import Any

from ..core.callables import function_name, qualified_name
from ..core.codec import Codec, codec, from_bytes, outline, to_bytes
from ..core.codec.codec import Arguments
from ..core.codec.misfit import misfit
from ..core.key import Key, KeyLike, KeyOf, Template
from ..core.seconds import real, whole_number
from ..engine.settings import RetrySettings
from ..ledger.jobs.tenants import TenantLimit
from ..ledger.model import Lease, NewJob
from ..ledger.validation import MAX_KIND_BYTES
from ..ledger.validation import check_name as check_printable
from ..worker.job_type import (
    Execution,
    Undecodable,
    Unstorable,
    durable_settings,
    execution_of,
)
from .arguments import ArgumentTemplate, TagReader, sequence_template, tenant_limit, tenant_template
from .cron import Cron
from .options import CommandOptions, ExhaustedState, SubmitOptions, check_priority, key_text

ENVELOPE_VERSION = 1
"""Version of the stored form: a JSON object of the arguments by name. `app.spill` also writes it.

The name of the command, the key, the correlation ids, the deadline and this number are columns of
the job.
"""

_COUNT = count()


class Envelope:
    """Encodes the calls of one function. Immutable: anything may share it.

    Args:
        name: Name of the command.
        fn: The function.
        key: Template of the job key, or a function of the arguments.
        skip: Number of leading parameters that are not stored.

    Raises:
        TypeError: An argument or the result has a type that cannot be stored.
        ValueError: The key names something that is not a parameter.
    """

    __slots__ = ("_arguments", "_key", "_place", "_result", "name")

    def __init__(
        self, name: str, fn: Callable[..., Any], key: KeyOf | None, /, *, skip: int
    ) -> None:
        self.name = name
        self._place = function_name(fn)
        self._arguments = Arguments(fn, skip=skip)
        if key is None:
            self._key: Template | Callable[..., KeyLike] | None = None
        elif isinstance(key, str):
            self._key = Template.over(key, fn, skip=skip)
        elif callable(key):
            self._key = key
        else:
            raise TypeError(
                "key= must be a template such as 'shop:{user}:{order_id}:receipt:v1', "
                f"or a function, not {key!r}"
            )
        try:
            hints = typing.get_type_hints(fn, include_extras=True)
            self._result: Codec = codec(hints.get("return", Any))
        except TypeError as error:
            raise TypeError(f"{self._place}: its result cannot be stored: {error}") from None

    @property
    def has_key(self) -> bool:
        """Whether the key is made from the arguments, so that equal submissions are one job."""
        return self._key is not None

    def key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> str:
        """Return the key of a call, or a unique one if the command has no key."""
        key = self._key
        if key is None:
            return str(Key("command", "", _unique_id(), self.name))
        try:
            if isinstance(key, Template):
                return str(key.key(args, kwargs))
            return key_text(key(*args, **kwargs))
        except TypeError:
            self._arguments.bind(args, kwargs)  # Raises a better message if the call is wrong.
            raise

    def encode_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> bytes:
        """Return the stored form of the arguments.

        Raises:
            TypeError: An argument does not have its annotated type.
        """
        return to_bytes(self._arguments.dump(args, kwargs))

    def decode_arguments(self, lease: Lease, /) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a job.

        Raises:
            Undecodable: They do not fit the function. The message has the stored names and the
                signature.
        """
        if lease.version != ENVELOPE_VERSION:
            raise Undecodable(
                f"envelope version {lease.version} cannot be read; "
                f"this code of {self.name} reads version {ENVELOPE_VERSION}"
            )
        try:
            return self._load(lease.payload)
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            raise Undecodable(
                f"stored arguments don't fit {self.name}: {error}",
                f"Stored: {outline(lease.payload)}; {self._takes}",
            ) from None

    def payload_problem(self, payload: bytes, /) -> str | None:
        """Return why a payload does not fit the function, or None."""
        try:
            self._load(payload)
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            return f"{error}; {self._takes}"
        return None

    @property
    def _takes(self) -> str:
        return f"{self._place} takes {self._arguments.signature}"

    def _load(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        stored = from_bytes(payload)
        if not isinstance(stored, dict):
            raise TypeError("a JSON object of arguments was expected")
        return self._arguments.load(stored)

    def encode_result(self, result: Any, /) -> bytes | None:
        """Return the stored form of a result.

        Raises:
            Unstorable: It does not have the annotated type.
        """
        if result is None:
            return None
        if hasattr(type(result), "__await__"):
            if hasattr(result, "close"):
                result.close()  # Otherwise Python warns later that it was never awaited.
            raise Unstorable(
                f"{self.name} is a sync function and returned an awaitable; "
                "register the `async def` itself"
            )
        try:
            return to_bytes(self._result.dump(result))
        except (TypeError, ValueError, RecursionError) as error:
            raise Unstorable(
                f"{self.name} has run, but its result cannot be stored: {misfit(error)}"
            ) from None

    def decode_result(self, result: bytes | None, /) -> Any:
        """Return a stored result as the annotated type."""
        return None if result is None else self._result.load(from_bytes(result))


def _unique_id() -> str:
    """Return a unique id. Ids sort by time, because a batch is stored in the order of its keys."""
    return f"{time_ns():016x}{next(_COUNT) & 0xFFFF:04x}{token_hex(6)}"


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
        tags: Reads the tags of a call. None: the command has no tags.
        memory_limit: Maximum memory of its process, in bytes.
        tenant: Makes the tenant of a call.
        tenant_limit: Limits of each tenant. None: the command has no tenants.
        sequence: Makes the sequence of a call.
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
    tags: TagReader | None
    memory_limit: int | None = None
    tenant: ArgumentTemplate | None = None
    tenant_limit: TenantLimit | None = None
    sequence: ArgumentTemplate | None = None

    @classmethod
    def of(cls, name: str, fn: Callable[..., Any], options: CommandOptions, /) -> CommandSpec:
        """Check the options of a command.

        Raises:
            TypeError: An option does not fit the function, or another option.
            ValueError: An option has an invalid value.
        """
        execution = _check_execution(name, fn, options)
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
            tags=_tag_reader(name, fn, options),
            memory_limit=_check_memory_limit(name, options),
            tenant=tenant_template(name, fn, options),
            tenant_limit=tenant_limit(name, options),
            sequence=sequence_template(name, fn, options),
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
            tags=None if self.tags is None else self.tags.read(args, kwargs),
            tenant=None if self.tenant is None else self.tenant.read(args, kwargs),
            sequence=None if self.sequence is None else self.sequence.read(args, kwargs),
        )


def check_name(name: object, /) -> None:
    """Raise TypeError or ValueError if the name of a command is not valid."""
    if callable(name):
        raise TypeError(
            'a command needs a name, which the ledger stores; write @app.command("receipts.send")'
        )
    check_printable("a command's name", name, MAX_KIND_BYTES)
    Key("command", "", "x", str(name))  # The name is a part of generated keys.


def _tag_reader(name: str, fn: Callable[..., Any], options: CommandOptions) -> TagReader | None:
    if options.tags == ():
        return None
    return TagReader(name, fn, options.tags, skip=int(options.in_transaction))


def _check_execution(name: str, fn: Callable[..., Any], options: CommandOptions) -> Execution:
    execution = execution_of(
        name, fn, in_transaction=options.in_transaction, isolation=options.isolation
    )
    if execution == "transaction":
        first = next(iter(inspect.signature(fn).parameters.values()), None)
        if first is None or first.kind > first.POSITIONAL_OR_KEYWORD:
            raise TypeError(
                f"{name}: with in_transaction=True the first parameter of {qualified_name(fn)} is "
                "the connection; it has no parameters"
            )
    return execution


SIZE_UNITS = {"KB": 1000, "MB": 1000**2, "GB": 1000**3}
SIZE_UNITS |= {"KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]I?B)", re.IGNORECASE)
MIN_MEMORY_BYTES = 32_000_000
"""Less than a Python process with Redrive needs."""


def _check_memory_limit(name: str, options: CommandOptions) -> int | None:
    """Return the memory limit in bytes."""
    limit = options.memory_limit
    if limit is None:
        return None
    if options.isolation != "process":
        raise TypeError(
            f"{name}: memory_limit= needs isolation='process'; pass both, or remove memory_limit="
        )
    size = _SIZE.fullmatch(limit.strip()) if isinstance(limit, str) else None
    if size is not None:
        limit = int(float(size[1]) * SIZE_UNITS[size[2].upper()])
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < MIN_MEMORY_BYTES:
        raise ValueError(
            f"{name}: invalid memory_limit= {options.memory_limit!r}: use a size such as '512MB' "
            f"or '2GiB', or a number of bytes, at least {MIN_MEMORY_BYTES:,}"
        )
    return limit


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
    if options.tenant is not None or options.sequence is not None:
        option = "tenant=" if options.tenant is not None else "sequence="
        raise TypeError(
            f"{name}: cron= and {option} cannot be combined, because a scheduled command is "
            f"called without arguments; remove {option}"
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
