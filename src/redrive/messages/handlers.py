"""Handlers: functions that handle events. Each has its own job for each event."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from ..core.callables import describe_problem, qualified_name, signature_text
from ..core.codec import Codec, codec, outline
from ..core.key import Key
from ..core.seconds import whole_number
from ..engine.settings import RetrySettings
from ..ledger.model import Lease
from ..ledger.validation import MAX_KIND_BYTES
from ..ledger.validation import check_name as check_printable
from ..worker.job_type import (
    Execution,
    JobType,
    Undecodable,
    durable_settings,
    execution_of,
)
from .event import Event
from .stored_event import event_from_lease, load_payload

if TYPE_CHECKING:
    import sqlalchemy

    EventHandler = TypeVar("EventHandler", bound=Callable[[Event[Any]], object])
    TxEventHandler = TypeVar(
        "TxEventHandler", bound=Callable[[sqlalchemy.Connection, Event[Any]], object]
    )

F = TypeVar("F", bound=Callable[..., Any])
Persist: TypeAlias = Literal["all", "failures"]
"""Which events of a source reach the ledger."""
MAX_FIRST_FAILURES = 1000
ALL_TYPES = "*"
MAX_CACHED_TYPES = 1000
"""Sources may send any number of types. The handlers of this number of types are cached."""


class FirstFailures:
    """Errors of direct calls, until the first attempt of their job takes them. Threads share it.

    If another worker gets the job, its first attempt is a call, and the oldest errors are dropped.
    """

    def __init__(self) -> None:
        self._errors: dict[str, BaseException] = {}
        self._lock = threading.Lock()

    def add(self, key: str, error: BaseException, /) -> None:
        """Keep the error of a direct call, by the key of its job."""
        with self._lock:
            while len(self._errors) >= MAX_FIRST_FAILURES:
                del self._errors[next(iter(self._errors))]
            self._errors[key] = error

    def raise_for(self, lease: Lease, /) -> None:
        """Raise the error of the direct call, if this is the first attempt of its job."""
        if self._errors and lease.attempt == 1 and lease.dead_id is None:
            with self._lock:
                error = self._errors.pop(lease.key, None)
            if error is not None:
                raise error


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A function and the events that it handles. Immutable: anything may share it."""

    name: str
    types: tuple[str, ...]
    fn: Callable[..., Any]
    execution: Execution
    payload_codec: Codec | None
    """None: the handler gets the payload as bytes."""
    settings: RetrySettings
    concurrency: int | None
    place: str
    """Where the function is defined, for messages."""
    persist: Persist = "all"
    first_failures: FirstFailures = field(default_factory=FirstFailures)
    store_event: Callable[[Lease, Any], None] | None = None
    """Stores the event of a lease again before a replay, in a transaction if there is one."""

    @property
    def kind(self) -> JobType:
        """The job type of the handler."""
        run: Callable[..., Any]
        if self.execution == "async":
            run = self._run_async
        else:
            run = self._run_in_transaction if self.execution == "transaction" else self._run_sync
        return JobType(
            self.name,
            run,
            self.execution,
            self.settings,
            concurrency=self.concurrency,
            fn=self.fn,
        )

    def _run_sync(self, lease: Lease) -> None:
        self.first_failures.raise_for(lease)
        if lease.dead_id is not None and self.store_event is not None:
            self.store_event(lease, None)
        result = self.fn(self.decode_event(lease))
        if result is not None:
            self.reject_awaitable(result)

    async def _run_async(self, lease: Lease) -> None:
        self.first_failures.raise_for(lease)
        if lease.dead_id is not None and self.store_event is not None:
            await asyncio.to_thread(self.store_event, lease, None)
        await self.fn(self.decode_event(lease))

    def _run_in_transaction(self, connection: sqlalchemy.Connection, lease: Lease) -> None:
        if lease.dead_id is not None and self.store_event is not None:
            self.store_event(lease, connection)
        result = self.fn(connection, self.decode_event(lease))
        if result is not None:
            self.reject_awaitable(result)

    def decode_event(self, lease: Lease, /) -> Event[Any]:
        """Return the event of a job.

        Raises:
            Undecodable: The payload does not have the annotated type.
        """
        return event_from_lease(lease, self.decode_payload(lease.payload))

    def decode_payload(self, payload: bytes, /) -> Any:
        """Return a payload as the annotated type.

        Raises:
            Undecodable: The payload does not have this type.
        """
        if self.payload_codec is None:
            return payload
        try:
            return self.payload_codec.load(load_payload(payload))
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            received = f"It is: {outline(payload)}"
            raise Undecodable(
                f"the event's payload doesn't fit {self.name} ({self.place}): {error}", received
            ) from None

    def reject_awaitable(self, result: object, /) -> None:
        """Raise TypeError if a sync function returned a coroutine."""
        if inspect.isawaitable(result):
            close = getattr(result, "close", None)
            if close is not None:
                close()  # avoids a warning that it was never awaited
            raise TypeError(
                f"{self.place} returned {type(result).__name__}, which is not awaited; make it "
                "`async def`"
            )


def make_handler(
    fn: Callable[..., Any],
    types: tuple[str, ...],
    /,
    *,
    name: str | None,
    retry: object,
    concurrency: int | None,
    in_transaction: bool,
    persist: Persist = "all",
) -> Handler:
    """Validate the options of `@app.on` and return the handler.

    Raises:
        TypeError: An option or the function has the wrong type.
        ValueError: A name is not valid.
    """
    place = qualified_name(fn)
    if not types or any(not isinstance(type_, str) for type_ in types):
        raise TypeError(f"{place}: {_types_message(types)}")
    for type_ in types:
        check_printable("an event's type", type_, MAX_KIND_BYTES)
    handler_name = getattr(fn, "__name__", "") if name is None else name
    check_printable("a handler's name", handler_name, MAX_KIND_BYTES)
    Key("event", "x", "x", handler_name)  # raises if the name cannot be part of a key
    execution = execution_of(handler_name, fn, in_transaction=in_transaction)
    _check_persist(persist, place, in_transaction=in_transaction, concurrency=concurrency)
    parameter = _event_parameter(fn, place, in_transaction=in_transaction)
    return Handler(
        name=handler_name,
        types=types,
        fn=fn,
        execution=execution,
        payload_codec=_payload_codec(fn, parameter, place),
        settings=durable_settings(handler_name, retry),
        concurrency=None if concurrency is None else whole_number("concurrency", concurrency),
        place=place,
        persist=persist,
    )


def _check_persist(
    persist: object, place: str, *, in_transaction: bool, concurrency: int | None
) -> None:
    if persist not in ("all", "failures"):
        raise ValueError(f'{place}: persist= must be "all" or "failures", not {persist!r}')
    if persist == "failures" and (in_transaction or concurrency is not None):
        option = "in_transaction=True" if in_transaction else "concurrency="
        raise TypeError(
            f'{place}: {option} needs a job for each event; remove it, or persist="failures"'
        )


def _types_message(types: object) -> str:
    return (
        f'event types must be names, not {types!r}; write @app.on("session.completed"), or "*" '
        "for all"
    )


def _event_parameter(
    fn: Callable[..., Any], place: str, *, in_transaction: bool
) -> inspect.Parameter:
    signature = inspect.signature(fn)
    required = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
    ]
    arguments = ["the connection", "the event"] if in_transaction else ["the event"]
    are_positional = all(
        parameter.kind <= parameter.POSITIONAL_OR_KEYWORD for parameter in required
    )
    if len(required) != len(arguments) or not are_positional:
        raise TypeError(
            f"{place} is called with {' and '.join(arguments)}, but takes {signature_text(fn)}"
        )
    return required[-1]


def _payload_codec(
    fn: Callable[..., Any], parameter: inspect.Parameter, place: str
) -> Codec | None:
    try:
        hint = typing.get_type_hints(fn, include_extras=True).get(parameter.name, Any)
    except (NameError, TypeError, AttributeError) as error:
        message = describe_problem(error, fn)
        raise TypeError(f"{place}: its annotations cannot be read: {message}") from None
    if hint not in (Any, Event) and typing.get_origin(hint) is not Event:
        raise TypeError(
            f"{place}: the parameter {parameter.name!r} must be an Event, for example "
            f"Event[dict[str, Any]], not {hint}"
        )
    payload_type = next(iter(typing.get_args(hint)), Any)
    if payload_type is bytes:
        return None
    try:
        return codec(payload_type)
    except TypeError as error:
        raise TypeError(f"{place}: the payload of its events: {error}") from None


class Handlers:
    """The handlers of an app, by name and by event type.

    Threads and forked children may share it.
    """

    def __init__(self, owner_of_name: Callable[[str], str | None]) -> None:
        """Create an empty registry.

        `owner_of_name` returns the place of the command that has a name. The ledger could not tell
        the jobs of a command and a handler with one name apart.
        """
        self._owner_of_name = owner_of_name
        self._by_name: dict[str, Handler] = {}
        self._by_type: dict[str, list[Handler]] = {}
        self._attempts: dict[str, list[tuple[str, int]]] = {}
        self.has_direct = False
        """Whether a handler has `persist="failures"`."""

    def decorator(self, types: tuple[str, ...], **options: Any) -> Callable[[F], F]:
        """Return a decorator that registers a function and returns it unchanged."""
        # Checked here, because a bare `@app.on` passes the function as a type.
        if any(callable(type_) for type_ in types):
            raise TypeError(_types_message(types))

        def register(fn: F) -> F:
            self.add(make_handler(fn, types, **options))
            return fn

        return register

    def add(self, handler: Handler, /) -> None:
        """Register a handler.

        Raises:
            ValueError: The name is taken. At a Python prompt, a handler may be defined again.
        """
        earlier = self._by_name.get(handler.name)
        owner = earlier.place if earlier else self._owner_of_name(handler.name)
        is_redefined = earlier is not None and hasattr(sys, "ps1")
        if owner is not None and not is_redefined:
            raise ValueError(
                f"handler name {handler.name!r} is already used by {owner}; name {handler.place} "
                "with @app.on(..., name=...)"
            )
        self._by_name[handler.name] = handler
        self._by_type, self._attempts = {}, {}
        self.has_direct = any(each.persist == "failures" for each in self._by_name.values())
        for registered in self._by_name.values():
            for type_ in registered.types:
                self._by_type.setdefault(type_, []).append(registered)

    def for_type(self, type_: str, /) -> list[Handler]:
        """Return the handlers of an event type."""
        handlers = self._by_type.get(type_, [])
        for_all = self._by_type.get(ALL_TYPES)
        if not for_all:
            return handlers
        return [*handlers, *(handler for handler in for_all if handler not in handlers)]

    def attempts_by_handler(self, type_: str, /) -> list[tuple[str, int]]:
        """Return the names of the handlers of an event type, and the maximum attempts of each."""
        attempts = self._attempts.get(type_)
        if attempts is None:
            attempts = attempts_of(self.for_type(type_))
            if len(self._attempts) < MAX_CACHED_TYPES:
                self._attempts[type_] = attempts
        return attempts

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)


def attempts_of(handlers: Iterable[Handler], /) -> list[tuple[str, int]]:
    """Return the names of handlers, and the maximum attempts of each."""
    return [(handler.name, handler.settings.max_attempts) for handler in handlers]
