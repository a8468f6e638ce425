"""Event: something that happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Generic, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
DEFAULT_SOURCE = "app"
MAX_NAME = 200
MAX_ID = 500
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Event(Generic[T_co]):
    """A message: something that happened. Its `id` is unique within its `source`.

    An event with the same source and id is a duplicate and is stored once.

    Immutable: threads, event loops and forked children may share one.

    Args:
        type: Type of the event, such as `"session.completed"`. Handlers are registered by it.
        payload: The data. It must be storable as JSON.
        id: Unique id within the source.
        source: Where the event comes from.
        headers: Text by name, stored with the event.
        at: When it happened, with a time zone.

    Raises:
        ValueError: A name is empty, not printable or too long, or `at` has no time zone.
    """

    type: str
    payload: T_co
    id: str = field(kw_only=True)
    source: str = field(default=DEFAULT_SOURCE, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=lambda: NOTHING, kw_only=True)
    at: datetime | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        named("type", self.type, MAX_NAME)
        named("source", self.source, MAX_NAME)
        named("id", self.id, MAX_ID)
        if self.at is not None and self.at.tzinfo is None:
            raise ValueError(f"an event's at= needs a time zone, for example datetime.now(timezone.utc): {self.at!r}")
        for name, value in self.headers.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"an event's headers must be text, but {name!r} is {type(value).__name__}")


def known(type_: str, payload: T, id_: str, source: str, headers: Mapping[str, str], at: datetime | None, /) -> Event[T]:
    """An event that was looked at when it came: made without looking again."""
    made: Event[T] = object.__new__(Event)
    put = object.__setattr__
    put(made, "type", type_)
    put(made, "payload", payload)
    put(made, "id", id_)
    put(made, "source", source)
    put(made, "headers", headers)
    put(made, "at", at)
    return made


def named(what: str, value: object, most: int, /) -> None:
    """Refuse a name that is none, with what is wrong with it."""
    if not isinstance(value, str):
        raise TypeError(f"an event's {what} must be text, not {type(value).__name__}")
    if not value or not value.isprintable():
        raise ValueError(f"an event's {what} must be printable and not empty: {value!r}")
    if len(value) * 4 > most and len(value.encode()) > most:
        raise ValueError(f"an event's {what} must not be longer than {most} bytes: {value[:60]!r}…")
