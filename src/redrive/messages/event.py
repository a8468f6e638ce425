"""Event: a message about something that happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Generic, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
DEFAULT_SOURCE = "app"
MAX_NAME_BYTES = 200
MAX_ID_BYTES = 500
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


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
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, kw_only=True)
    at: datetime | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_name("type", self.type, MAX_NAME_BYTES)
        check_name("source", self.source, MAX_NAME_BYTES)
        check_name("id", self.id, MAX_ID_BYTES)
        if self.at is not None and self.at.tzinfo is None:
            raise ValueError(
                "an event's at= needs a time zone, for example datetime.now(timezone.utc): "
                f"{self.at!r}"
            )
        for name, value in self.headers.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(
                    f"an event's headers must be text, but {name!r} is {type(value).__name__}"
                )


class _OpenEvent(Generic[T]):
    """An event whose fields can be set. Its layout in memory is that of `Event`."""

    __slots__ = Event.__slots__


def trusted_event(
    type_: str,
    payload: T,
    id_: str,
    source: str,
    headers: Mapping[str, str],
    at: datetime | None,
    /,
) -> Event[T]:
    """Return an event without validation, because it was validated when it was stored.

    It takes a third of the time of `object.__setattr__` for each field, as a frozen class needs it.
    """
    event: Any = object.__new__(_OpenEvent)
    event.type, event.payload, event.id = type_, payload, id_
    event.source, event.headers, event.at = source, headers, at
    event.__class__ = Event
    return event  # type: ignore[no-any-return]


def check_name(field_name: str, value: object, max_bytes: int, /) -> None:
    """Validate a type, a source or an id.

    Raises:
        TypeError: It is not text.
        ValueError: It is empty, not printable or too long.
    """
    if not isinstance(value, str):
        raise TypeError(f"an event's {field_name} must be text, not {type(value).__name__}")
    if not value or not value.isprintable():
        raise ValueError(f"an event's {field_name} must be printable and not empty: {value!r}")
    if len(value) * 4 > max_bytes and len(value.encode()) > max_bytes:
        raise ValueError(
            f"an event's {field_name} must not be longer than {max_bytes} bytes: {value[:60]!r}…"
        )
