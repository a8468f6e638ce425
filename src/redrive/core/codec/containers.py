"""Values made of others: sequences, mappings, unions."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from typing import Any

from .protocol import Codec, unfit
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
        return [self._item.dump(each) for each in value]

    def load(self, data: Any, /) -> Any:
        """The list, tuple or set."""
        if not isinstance(data, list):
            raise unfit("a list", data)
        return self._make(self._item.load(each) for each in data)


class Fixed:
    """A tuple of known length."""

    def __init__(self, items: tuple[Codec, ...]) -> None:
        self._items = items

    def dump(self, value: Any, /) -> Any:
        """A list."""
        if not isinstance(value, tuple) or len(value) != len(self._items):
            raise TypeError(f"expected a tuple of {len(self._items)}, not {value!r}")
        return [codec.dump(each) for codec, each in zip(self._items, value, strict=True)]

    def load(self, data: Any, /) -> Any:
        """The tuple."""
        if not isinstance(data, list) or len(data) != len(self._items):
            raise unfit(f"a list of {len(self._items)}", data)
        return tuple(codec.load(each) for codec, each in zip(self._items, data, strict=True))


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
        return {self._key.dump(key): self._value.dump(each) for key, each in value.items()}

    def load(self, data: Any, /) -> Any:
        """The dict."""
        if not isinstance(data, dict):
            raise unfit("an object", data)
        return data if self._as_it_is else {self._key.load(key): self._value.load(each) for key, each in data.items()}


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
                refusals.append(str(refusal))
        raise TypeError("; ".join(refusals))

    def load(self, data: Any, /) -> Any:
        """The value that the tag says."""
        return self._members[data[TAG]].load(data["value"])


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


def union(members: list[tuple[Any, Codec]]) -> Codec:
    """The codec of a union: as little as tells its members apart."""
    others = [codec for annotation, codec in members if annotation is not type(None)]
    inner = others[0] if len(others) == 1 else Either(others)
    return inner if len(others) == len(members) else Optional(inner)
