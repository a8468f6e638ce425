"""Codecs of sequences, mappings and unions."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from typing import Any

from .misfit import Misfit, misfit, unfit, within
from .scalars import ANY, TEXT_KEYS, Codec

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
