"""Codecs of single values: text, numbers, enums, dates, and other types that are stored as text."""

from __future__ import annotations

import base64
import enum
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, Protocol
from uuid import UUID

from .misfit import Misfit, unfit


class Codec(Protocol):
    """Converts values of one annotation."""

    def dump(self, value: Any, /) -> Any:
        """Return a value that JSON can store. TypeError if it does not fit the annotation."""

    def load(self, data: Any, /) -> Any:
        """Return the value of the annotated type."""


class JsonType:
    """Stores a JSON type unchanged. An int fits a float, but a bool does not fit an int."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def dump(self, value: Any, /) -> Any:
        """Return the value if it has the type."""
        return _check(self._kind, value)

    def load(self, data: Any, /) -> Any:
        """Return the value if it has the type."""
        return (
            float(data) if self._kind is float and type(data) is int else _check(self._kind, data)
        )


class AsText:
    """Stores a type as text, or `timedelta` as seconds."""

    def __init__(self, kind: type, dump: Callable[[Any], Any], load: Callable[[Any], Any]) -> None:
        self._kind = kind
        self._dump = dump
        self._load = load

    def dump(self, value: Any, /) -> Any:
        """Return the text."""
        if not isinstance(value, self._kind):
            raise unfit(self._kind.__name__, value)
        return self._dump(value)

    def load(self, data: Any, /) -> Any:
        """Return the value of this text."""
        try:
            return self._load(data)
        except Exception:  # the message of the type quotes the text
            if isinstance(data, str):
                raise Misfit(f"expected {self._kind.__name__}, but the text is not valid") from None
            raise unfit(self._kind.__name__, data) from None


class Enumerated:
    """Stores an enum by its value, or by its name if JSON cannot store the value."""

    def __init__(self, kind: type[enum.Enum]) -> None:
        self._kind = kind
        self._by_value = all(isinstance(member.value, (str, int)) for member in kind)

    def dump(self, value: Any, /) -> Any:
        """Return its value or its name."""
        if not isinstance(value, self._kind):
            raise unfit(self._kind.__name__, value)
        return value.value if self._by_value else value.name

    def load(self, data: Any, /) -> Any:
        """Return the member."""
        try:
            return self._kind(data) if self._by_value else self._kind[data]
        except Exception:
            raise Misfit(f"expected a member of {self._kind.__name__}") from None


class Literal:
    """Stores one of the values of a `Literal`."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        if not all(value is None or isinstance(value, (str, int, bool)) for value in values):
            raise TypeError(
                f"Literal{list(values)} cannot be stored; "
                "use text, whole numbers, booleans and None"
            )
        self._values = values

    def dump(self, value: Any, /) -> Any:
        """Return the value if it is one of them."""
        for allowed in self._values:
            if type(allowed) is type(value) and allowed == value:
                return value
        raise unfit(f"one of {list(self._values)}", value)

    load = dump


class AnyJson:
    """Stores any JSON value, for `Any` and `object`."""

    def dump(self, value: Any, /) -> Any:
        """Return the value if JSON can store it unchanged."""
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float)):
            return _check(type(value), value)
        if isinstance(value, (list, tuple)):
            return [self.dump(item) for item in value]
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            return {name: self.dump(item) for name, item in value.items()}
        raise Misfit(
            f"{type(value).__name__} cannot be stored as JSON; "
            "pass text, numbers, lists or dicts, or annotate another type that can be stored"
        )

    def load(self, data: Any, /) -> Any:
        """Return the value."""
        return data


def _bytes_of(text: str) -> bytes:
    """Decode canonical base64 only, so that each value has one text."""
    decoded = base64.b64decode(text, validate=True)
    if base64.b64encode(decoded).decode() != text:
        raise ValueError("not canonical base64")
    return decoded


def _whole_key(text: str) -> int:
    if str(number := int(text)) != text:
        raise ValueError("not a canonical whole number")
    return number


def _float_key(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError("not a finite number")
    return number


ANY = AnyJson()
_SCALARS: dict[Any, Codec] = {
    None: JsonType(type(None)),
    **{kind: JsonType(kind) for kind in (type(None), bool, int, float, str)},
    bytes: AsText(bytes, lambda value: base64.b64encode(value).decode(), _bytes_of),
    datetime: AsText(datetime, datetime.isoformat, datetime.fromisoformat),
    date: AsText(date, date.isoformat, date.fromisoformat),
    time: AsText(time, time.isoformat, time.fromisoformat),
    timedelta: AsText(
        timedelta, timedelta.total_seconds, lambda seconds: timedelta(seconds=seconds)
    ),
    Decimal: AsText(Decimal, str, Decimal),
    UUID: AsText(UUID, str, UUID),
    Path: AsText(PurePath, str, Path),
}
_KEYS: dict[Any, Callable[[str], Any]] = {
    int: _whole_key,
    float: _float_key,
    date: date.fromisoformat,
    UUID: UUID,
}


def codec_of(annotation: Any) -> Codec | None:
    """Return the codec of a single value. None if the annotation is not one."""
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return Enumerated(annotation)
    return _SCALARS.get(annotation)


def key_codec(annotation: Any) -> Codec | None:
    """Return the codec of the keys of a mapping, which are text in JSON."""
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        members = Enumerated(annotation)
        has_ints = all(
            isinstance(member.value, int) and not isinstance(member.value, str)
            for member in annotation
        )
        return AsText(
            annotation,
            lambda key: str(members.dump(key)),
            lambda text: members.load(int(text) if has_ints else text),
        )
    if annotation in (str, Any):
        return TEXT_KEYS
    return AsText(annotation, _key_text, _KEYS[annotation]) if annotation in _KEYS else None


def _key_text(key: Any) -> str:
    if isinstance(key, float) and not math.isfinite(key):
        raise Misfit(f"{key!r} cannot be stored: JSON has no such number")
    return key.isoformat() if isinstance(key, date) else str(key)


TEXT_KEYS = AsText(str, _key_text, str)


def _check(kind: type, value: Any) -> Any:
    fits = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
    if not fits and not (kind is float and type(value) is int):
        raise unfit(kind.__name__, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Misfit(f"{value!r} cannot be stored: JSON has no such number")
    return value
