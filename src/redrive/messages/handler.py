"""Handler: a function that has to do with events of some types. Run, retried, dead-lettered and replayed by itself."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.codec import Codec, codec, outline
from ..core.key import Key
from ..core.seconds import whole
from ..engine.settings import Settings
from ..ledger.limits import MAX_KIND
from ..ledger.limits import name as printable
from ..ledger.record import Lease
from ..worker.durable import colour_of, place_of, settings_of
from ..worker.kind import Colour, Kind, Undecodable
from .event import Event
from .stored import event_of, loaded

if TYPE_CHECKING:
    import sqlalchemy

EVERYTHING = "*"


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """What a function was told of the events it handles. Immutable: anything may share it."""

    name: str
    types: tuple[str, ...]
    fn: Callable[..., Any]
    colour: Colour
    payload: Codec | None
    """How its payload is read; None: as the bytes that came."""
    settings: Settings
    concurrency: int | None
    place: str
    record: Callable[[Lease, Any], None] | None = None
    """Before a replay: records the event again, in the transaction, where there is one."""

    @property
    def kind(self) -> Kind:
        """What a worker knows of it."""
        runs: dict[Colour, Callable[..., Any]] = {
            "plain": self._plain, "async": self._async, "transaction": self._transaction,
        }  # fmt: skip
        run = runs[self.colour]
        return Kind(self.name, run, self.colour, self.settings, concurrency=self.concurrency, fn=self.fn)

    def _plain(self, lease: Lease) -> None:
        if lease.dead_id is not None and self.record is not None:
            self.record(lease, None)
        result = self.fn(self.opened(lease))
        if result is not None:
            _nothing(self, result)

    async def _async(self, lease: Lease) -> None:
        if lease.dead_id is not None and self.record is not None:
            await asyncio.to_thread(self.record, lease, None)
        await self.fn(self.opened(lease))

    def _transaction(self, connection: sqlalchemy.Connection, lease: Lease) -> None:
        if lease.dead_id is not None and self.record is not None:
            self.record(lease, connection)
        result = self.fn(connection, self.opened(lease))
        if result is not None:
            _nothing(self, result)

    def opened(self, lease: Lease, /) -> Event[Any]:
        """The event; Undecodable has the names that came, and what the handler takes."""
        try:
            payload: Any = lease.payload if self.payload is None else self.payload.load(loaded(lease.payload))
            return event_of(lease, payload)
        except (TypeError, ValueError, KeyError, RecursionError) as wrong:
            came = f"It is: {outline(lease.payload)}"
            raise Undecodable(f"the event's payload doesn't fit {self.name} ({self.place}): {wrong}", came) from None


def handler(
    fn: Callable[..., Any], types: tuple[str, ...], /, *, name: str | None, retry: object, concurrency: int | None,
    in_transaction: bool,
) -> Handler:  # fmt: skip
    """Everything that was told, checked; TypeError or ValueError says what is wrong with it."""
    place = place_of(fn)
    if not types or any(not isinstance(one, str) for one in types):
        raise TypeError(f'{place}: event types must be names, not {types!r}; write @app.on("session.completed"), or "*" for all')
    for one in types:
        printable("an event's type", one, MAX_KIND)
    called = getattr(fn, "__name__", "") if name is None else name
    printable("a handler's name", called, MAX_KIND)
    Key("event", "x", "x", called)  # it is part of the keys of its jobs
    colour = colour_of(called, fn, in_transaction=in_transaction)
    parameter = _parameter(fn, place, int(in_transaction))
    return Handler(
        name=called, types=types, fn=fn, colour=colour, payload=_payload(fn, parameter, place),
        settings=settings_of(called, retry), concurrency=None if concurrency is None else whole("concurrency", concurrency),
        place=place,
    )  # fmt: skip


def _parameter(fn: Callable[..., Any], place: str, skip: int) -> inspect.Parameter:
    taken = [one for one in inspect.signature(fn).parameters.values() if one.default is one.empty]
    wanted = ["the connection", "the event"][1 - skip :]
    if len(taken) != 1 + skip or any(one.kind > one.POSITIONAL_OR_KEYWORD for one in taken):
        raise TypeError(f"{place} is called with {' and '.join(wanted)}, but takes {inspect.signature(fn)}")
    return taken[skip]


def _payload(fn: Callable[..., Any], parameter: inspect.Parameter, place: str) -> Codec | None:
    try:
        hint = typing.get_type_hints(fn, include_extras=True).get(parameter.name, Any)
    except (NameError, TypeError, AttributeError) as wrong:
        raise TypeError(f"{place}: its annotations cannot be read: {wrong}") from None
    if hint not in (Any, Event) and typing.get_origin(hint) is not Event:
        raise TypeError(
            f"{place}: the parameter {parameter.name!r} must be an Event, for example Event[dict[str, Any]], not {hint}"
        )
    inside = next(iter(typing.get_args(hint)), Any)
    if inside is bytes:
        return None
    try:
        return codec(inside)
    except TypeError as refused:
        raise TypeError(f"{place}: the payload of its events: {refused}") from None


def _nothing(of: Handler, result: object) -> None:
    if inspect.isawaitable(result):
        close = getattr(result, "close", None)
        if close is not None:
            close()
        raise TypeError(f"{of.place} returned {type(result).__name__}, which is not awaited; make it `async def`")
