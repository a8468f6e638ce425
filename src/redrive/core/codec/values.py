"""Codecs of values: single values that are stored as JSON or text, sequences, mappings, unions."""

from __future__ import annotations

import base64
import enum
import math
import typing
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, Protocol
from uuid import UUID

from .misfit import Misfit, misfit, unfit, within


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
        if isinstance(value, dict):
            name = next(name for name in value if not isinstance(name, str))
            raise Misfit(f"a dict cannot be stored as JSON: the key {name!r} is not text")
        raise Misfit(
            f"{type(value).__name__} cannot be stored as JSON; "
            "use text, numbers, lists or dicts, or annotate another type that can be stored"
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


TAG = "$type"
"""The member of a union to which a stored value belongs."""


class Deferral:
    """Stands in for a codec that is being built, for a class that contains itself."""

    codec: Codec

    def dump(self, value: Any, /) -> Any:
        """Convert as the finished codec does."""
        return self.codec.dump(value)

    def load(self, data: Any, /) -> Any:
        """Convert as the finished codec does."""
        return self.codec.load(data)


class Sequence:
    """Stores a list, tuple or set as a list."""

    def __init__(self, make: Callable[[Iterable[Any]], Any], item: Codec) -> None:
        self._make = make
        self._item = item

    def dump(self, value: Any, /) -> Any:
        """Return a list."""
        if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
            raise unfit("a sequence", value)
        return _convert_all(self._item.dump, value)

    def load(self, data: Any, /) -> Any:
        """Return the list, tuple or set."""
        if not isinstance(data, list):
            raise unfit("a list", data)
        loaded = _convert_all(self._item.load, data)
        try:
            return loaded if self._make is list else self._make(loaded)
        except TypeError as problem:  # an item of a set cannot be hashed
            raise misfit(problem) from None


class FixedTuple:
    """Stores a tuple of a known length."""

    def __init__(self, items: tuple[Codec, ...]) -> None:
        self._items = items

    def dump(self, value: Any, /) -> Any:
        """Return a list."""
        if not isinstance(value, tuple) or len(value) != len(self._items):
            raise unfit(f"a tuple of {len(self._items)}", value)
        return _convert_each([codec.dump for codec in self._items], value)

    def load(self, data: Any, /) -> Any:
        """Return the tuple."""
        if not isinstance(data, list) or len(data) != len(self._items):
            raise unfit(f"a list of {len(self._items)}", data)
        return tuple(_convert_each([codec.load for codec in self._items], data))


class Mapping:
    """Stores a mapping as an object."""

    def __init__(self, key: Codec, value: Codec) -> None:
        self._key = key
        self._value = value
        self._is_unchanged = key is TEXT_KEYS and value is ANY

    def dump(self, value: Any, /) -> Any:
        """Return an object with text as keys."""
        if not isinstance(value, typing.Mapping):
            raise unfit("a mapping", value)
        return _convert_mapping(self._key.dump, self._value.dump, value)

    def load(self, data: Any, /) -> Any:
        """Return the dict."""
        if not isinstance(data, dict):
            raise unfit("an object", data)
        return (
            data if self._is_unchanged else _convert_mapping(self._key.load, self._value.load, data)
        )


class TaggedUnion:
    """Stores a value of a union with the number of its type."""

    def __init__(self, members: list[Codec]) -> None:
        self._members = members

    def dump(self, value: Any, /) -> Any:
        """Return an object of the tag and the value."""
        refusals = []
        for number, member in enumerate(self._members):
            try:
                return {TAG: number, "value": member.dump(value)}
            except (TypeError, ValueError) as refusal:
                refusals.append(str(misfit(refusal)))
        raise Misfit("; ".join(refusals))

    def load(self, data: Any, /) -> Any:
        """Return the value of the tagged type."""
        if not isinstance(data, dict) or data.keys() != {TAG, "value"}:
            raise unfit(f"an object of {TAG} and value", data)
        number = data[TAG]
        if type(number) is not int or not 0 <= number < len(self._members):
            raise Misfit(f"expected {TAG} from 0 to {len(self._members) - 1}")
        return self._members[number].load(data["value"])


class Optional:
    """Stores a value or None, without a tag."""

    def __init__(self, member: Codec) -> None:
        self._member = member

    def dump(self, value: Any, /) -> Any:
        """Return None, or the stored value."""
        return None if value is None else self._member.dump(value)

    def load(self, data: Any, /) -> Any:
        """Return None, or the value."""
        return None if data is None else self._member.load(data)


def _convert_all(convert: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    converted: list[Any] = []
    add = converted.append
    try:
        for value in values:
            add(convert(value))
    except Exception as problem:
        raise within(f"[{len(converted)}]", problem) from None
    return converted


def _convert_each(converts: list[Callable[[Any], Any]], values: typing.Sequence[Any]) -> list[Any]:
    converted: list[Any] = []
    try:
        for convert, value in zip(converts, values, strict=True):
            converted.append(convert(value))  # its length is the index for errors
    except Exception as problem:
        raise within(f"[{len(converted)}]", problem) from None
    return converted


def _convert_mapping(
    key: Callable[[Any], Any], value: Callable[[Any], Any], values: typing.Mapping[Any, Any]
) -> dict[Any, Any]:
    """Convert keys and values. Errors show `*` instead of a key, because keys are data."""
    converted: dict[Any, Any] = {}
    try:
        for name, item in values.items():
            converted[key(name)] = value(item)
    except Exception as problem:
        raise within("*", problem) from None
    return converted


def union(members: list[tuple[Any, Codec]]) -> Codec:
    """Return the codec of a union. A tag is stored only if there are several types beside None."""
    codecs = [codec for annotation, codec in members if annotation is not type(None)]
    inner = codecs[0] if len(codecs) == 1 else TaggedUnion(codecs)
    return inner if len(codecs) == len(members) else Optional(inner)
