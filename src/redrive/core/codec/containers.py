"""Values made of others: sequences, mappings, unions."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from typing import Any

from .misfit import Misfit, misfit, unfit, within
from .protocol import Codec
from .scalars import ANY, TEXTS

TAG = "$type"
"""Which member of a union a value is, where its JSON alone does not tell."""


class Later:
    """A codec that is still being built: stands in for a class that contains itself."""

    codec: Codec

    def dump(self, value: Any, /) -> Any:
        """As the finished one does."""
        return self.codec.dump(value)

    def load(self, data: Any, /) -> Any:
        """As the finished one does."""
        return self.codec.load(data)


class Sequence:
    """Many of one kind."""

    def __init__(self, make: Callable[[Iterable[Any]], Any], item: Codec) -> None:
        self._make = make
        self._item = item

    def dump(self, value: Any, /) -> Any:
        """A list."""
        if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
            raise unfit("a sequence", value)
        return _each(self._item.dump, value)

    def load(self, data: Any, /) -> Any:
        """The list, tuple or set."""
        if not isinstance(data, list):
            raise unfit("a list", data)
        loaded = _each(self._item.load, data)
        try:
            return loaded if self._make is list else self._make(loaded)
        except TypeError as wrong:  # of a set, by what cannot be hashed
            raise misfit(wrong) from None


class Fixed:
    """A tuple of known length."""

    def __init__(self, items: tuple[Codec, ...]) -> None:
        self._items = items

    def dump(self, value: Any, /) -> Any:
        """A list."""
        if not isinstance(value, tuple) or len(value) != len(self._items):
            raise unfit(f"a tuple of {len(self._items)}", value)
        return _zipped([codec.dump for codec in self._items], value)

    def load(self, data: Any, /) -> Any:
        """The tuple."""
        if not isinstance(data, list) or len(data) != len(self._items):
            raise unfit(f"a list of {len(self._items)}", data)
        return tuple(_zipped([codec.load for codec in self._items], data))


class Mapping:
    """Keys and values."""

    def __init__(self, key: Codec, value: Codec) -> None:
        self._key = key
        self._value = value
        self._as_it_is = key is TEXTS and value is ANY  # as JSON has it

    def dump(self, value: Any, /) -> Any:
        """An object; its keys as text."""
        if not isinstance(value, typing.Mapping):
            raise unfit("a mapping", value)
        return _mapped(self._key.dump, self._value.dump, value)

    def load(self, data: Any, /) -> Any:
        """The dict."""
        if not isinstance(data, dict):
            raise unfit("an object", data)
        return data if self._as_it_is else _mapped(self._key.load, self._value.load, data)


class Either:
    """One of several types. A value is stored with the number of its type, unless only None stands beside one other."""

    def __init__(self, members: list[Codec]) -> None:
        self._members = members

    def dump(self, value: Any, /) -> Any:
        """With its tag."""
        refusals = []
        for number, member in enumerate(self._members):
            try:
                return {TAG: number, "value": member.dump(value)}
            except (TypeError, ValueError) as refusal:
                refusals.append(str(misfit(refusal)))
        raise Misfit("; ".join(refusals))

    def load(self, data: Any, /) -> Any:
        """The value that the tag says."""
        if not isinstance(data, dict) or data.keys() != {TAG, "value"}:
            raise unfit(f"an object of {TAG} and value", data)
        number = data[TAG]
        if type(number) is not int or not 0 <= number < len(self._members):
            raise Misfit(f"expected {TAG} from 0 to {len(self._members) - 1}")
        return self._members[number].load(data["value"])


class Optional:
    """A value or None."""

    def __init__(self, member: Codec) -> None:
        self._member = member

    def dump(self, value: Any, /) -> Any:
        """null, or the value's own."""
        return None if value is None else self._member.dump(value)

    def load(self, data: Any, /) -> Any:
        """None, or the value."""
        return None if data is None else self._member.load(data)


def _each(convert: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    converted: list[Any] = []
    add = converted.append
    try:
        for value in values:
            add(convert(value))
    except Exception as wrong:
        raise within(f"[{len(converted)}]", wrong) from None
    return converted


def _zipped(converts: list[Callable[[Any], Any]], values: typing.Sequence[Any]) -> list[Any]:
    converted: list[Any] = []
    try:
        for convert, value in zip(converts, values, strict=True):
            converted.append(convert(value))  # its length says where it failed
    except Exception as wrong:
        raise within(f"[{len(converted)}]", wrong) from None
    return converted


def _mapped(key: Callable[[Any], Any], value: Callable[[Any], Any], values: typing.Mapping[Any, Any]) -> dict[Any, Any]:
    """A key of a mapping is data: the path says `*` instead."""
    converted: dict[Any, Any] = {}
    try:
        for name, each in values.items():
            converted[key(name)] = value(each)
    except Exception as wrong:
        raise within("*", wrong) from None
    return converted


def union(members: list[tuple[Any, Codec]]) -> Codec:
    """The codec of a union: as little as tells its members apart."""
    others = [codec for annotation, codec in members if annotation is not type(None)]
    inner = others[0] if len(others) == 1 else Either(others)
    return inner if len(others) == len(members) else Optional(inner)
