"""Single values: text, numbers, enums, dates, and what else JSON holds as text."""

from __future__ import annotations

import base64
import enum
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

from .misfit import Misfit, unfit
from .protocol import Codec


class Same:
    """A JSON type: stored as it is. An int is taken where a float is meant; a bool is no int."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def dump(self, value: Any, /) -> Any:
        """The value, if it is of its type."""
        return _checked(self._kind, value)

    def load(self, data: Any, /) -> Any:
        """The value, if it is of its type."""
        return float(data) if self._kind is float and type(data) is int else _checked(self._kind, data)


class AsText:
    """A type that JSON holds as text (or, for `timedelta`, as seconds)."""

    def __init__(self, kind: type, dump: Callable[[Any], Any], load: Callable[[Any], Any]) -> None:
        self._kind = kind
        self._dump = dump
        self._load = load

    def dump(self, value: Any, /) -> Any:
        """Its text."""
        if not isinstance(value, self._kind):
            raise unfit(self._kind.__name__, value)
        return self._dump(value)

    def load(self, data: Any, /) -> Any:
        """The value that this text says."""
        try:
            return self._load(data)
        except Exception:  # each type refuses in its own way, and quotes the text
            if isinstance(data, str):
                raise Misfit(f"expected {self._kind.__name__}, but the text is not valid") from None
            raise unfit(self._kind.__name__, data) from None


class Enumerated:
    """An enum: stored by its value where JSON can hold that, else by its name."""

    def __init__(self, kind: type[enum.Enum]) -> None:
        self._kind = kind
        self._by_value = all(isinstance(member.value, (str, int)) for member in kind)

    def dump(self, value: Any, /) -> Any:
        """Its value, or its name."""
        if not isinstance(value, self._kind):
            raise unfit(self._kind.__name__, value)
        return value.value if self._by_value else value.name

    def load(self, data: Any, /) -> Any:
        """The member."""
        try:
            return self._kind(data) if self._by_value else self._kind[data]
        except Exception:
            raise Misfit(f"expected a member of {self._kind.__name__}") from None


class Literal:
    """One of a few given values."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        if not all(value is None or isinstance(value, (str, int, bool)) for value in values):
            raise TypeError(f"Literal{list(values)} cannot be stored; use text, whole numbers, booleans and None")
        self._values = values

    def dump(self, value: Any, /) -> Any:
        """The value, if it is one of them."""
        for each in self._values:
            if type(each) is type(value) and each == value:
                return value
        raise unfit(f"one of {list(self._values)}", value)

    load = dump


class AnyJson:
    """Whatever JSON can hold: where nothing is annotated."""

    def dump(self, value: Any, /) -> Any:
        """The value, if JSON can hold it as it is."""
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float)):
            return _checked(type(value), value)
        if isinstance(value, (list, tuple)):
            return [self.dump(each) for each in value]
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            return {name: self.dump(each) for name, each in value.items()}
        raise Misfit(
            f"{type(value).__name__} cannot be stored as JSON; "
            "pass text, numbers, lists or dicts, or annotate another type that can be stored"
        )

    def load(self, data: Any, /) -> Any:
        """The value."""
        return data


def _bytes_of(text: str) -> bytes:
    """Strict: one text for each value, without foreign characters, missing padding or stray bits."""
    found = base64.b64decode(text, validate=True)
    if base64.b64encode(found).decode() != text:
        raise ValueError("not canonical base64")
    return found


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
    None: Same(type(None)),
    **{kind: Same(kind) for kind in (type(None), bool, int, float, str)},
    bytes: AsText(bytes, lambda value: base64.b64encode(value).decode(), _bytes_of),
    datetime: AsText(datetime, datetime.isoformat, datetime.fromisoformat),
    date: AsText(date, date.isoformat, date.fromisoformat),
    time: AsText(time, time.isoformat, time.fromisoformat),
    timedelta: AsText(timedelta, timedelta.total_seconds, lambda seconds: timedelta(seconds=seconds)),
    Decimal: AsText(Decimal, str, Decimal),
    UUID: AsText(UUID, str, UUID),
    Path: AsText(PurePath, str, Path),
}
_KEYS: dict[Any, Callable[[str], Any]] = {int: _whole_key, float: _float_key, date: date.fromisoformat, UUID: UUID}


def codec_of(annotation: Any) -> Codec | None:
    """The codec of a single value; None where it is none."""
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return Enumerated(annotation)
    return _SCALARS.get(annotation)


def key_codec(annotation: Any) -> Codec | None:
    """The codec of a mapping's keys, which JSON has only as text."""
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        members = Enumerated(annotation)
        whole = all(isinstance(member.value, int) and not isinstance(member.value, str) for member in annotation)
        return AsText(annotation, lambda key: str(members.dump(key)), lambda text: members.load(int(text) if whole else text))
    if annotation in (str, Any):
        return TEXTS
    return AsText(annotation, _key_text, _KEYS[annotation]) if annotation in _KEYS else None


def _key_text(key: Any) -> str:
    if isinstance(key, float) and not math.isfinite(key):
        raise Misfit(f"{key!r} cannot be stored: JSON has no such number")
    return key.isoformat() if isinstance(key, date) else str(key)


TEXTS = AsText(str, _key_text, str)
"""Keys that are texts, as all are in JSON."""


def _checked(kind: type, value: Any) -> Any:
    fits = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
    if not fits and not (kind is float and type(value) is int):
        raise unfit(kind.__name__, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Misfit(f"{value!r} cannot be stored: JSON has no such number")
    return value
