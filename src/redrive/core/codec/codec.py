"""Codec: how values of one annotation are stored. `codec(annotation)` finds or builds it."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from . import containers, records, scalars
from .protocol import Codec


def codec(annotation: Any, /) -> Codec:
    """The codec of an annotation; TypeError where values of it cannot be stored."""
    return _Builder().of(annotation)


class _Builder:
    """Builds the codecs of one annotation. Remembers those under way, so that a class may contain itself."""

    def __init__(self) -> None:
        self._known: dict[Any, Codec] = {}

    def of(self, annotation: Any) -> Codec:
        try:
            found = self._known.get(annotation)
        except TypeError:  # an annotation that cannot be hashed, such as Literal[[]]
            raise _refused(annotation) from None
        if found is not None:
            return found
        later = containers.Later()
        self._known[annotation] = later
        later.codec = self._built(annotation)
        self._known[annotation] = later.codec
        return later.codec

    def _built(self, annotation: Any) -> Codec:
        if annotation in (Any, object, Ellipsis):
            return scalars.ANY
        scalar = scalars.codec_of(annotation)
        if scalar is not None:
            return scalar
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is not None:
            return self._generic(annotation, origin, arguments)
        inner = _inside(annotation)
        if inner is not None:
            return self.of(inner)
        if annotation in _BARE:
            return self.of(_BARE[annotation])
        record = records.codec_of(annotation, self.of)
        if record is not None:
            return record
        raise _refused(annotation)

    def _generic(self, annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> Codec:
        if origin is typing.Annotated:
            return self.of(arguments[0])
        if origin is typing.Literal:
            return scalars.Literal(arguments)
        if origin in (typing.Union, types.UnionType):
            return containers.union([(each, self.of(each)) for each in arguments])
        if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            return containers.Fixed(tuple(self.of(each) for each in arguments))
        if origin in _SEQUENCES:
            return containers.Sequence(_SEQUENCES[origin], self.of(arguments[0]))
        if origin in _MAPPINGS:
            return containers.Mapping(scalars.key_codec(arguments[0]) or _no_key(annotation), self.of(arguments[1]))
        record = records.codec_of(annotation, self.of)
        if record is not None:
            return record
        raise _refused(annotation)


_SEQUENCES: dict[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    Sequence: list,
    Iterable: list,
    Collection: list,
}
_MAPPINGS = (dict, Mapping)
_BARE: dict[Any, Any] = {
    list: list[Any],
    tuple: tuple[Any, ...],
    set: set[Any],
    frozenset: frozenset[Any],
    dict: dict[str, Any],
}


def _inside(annotation: Any) -> Any:
    """What stands behind a NewType, a type alias or a type variable."""
    if isinstance(annotation, typing.NewType):
        return annotation.__supertype__
    if isinstance(annotation, typing.TypeVar):
        return annotation.__bound__ or Any
    return getattr(annotation, "__value__", None)  # `type Name = ...`, from 3.12 on


def _no_key(annotation: Any) -> typing.NoReturn:
    raise TypeError(f"{_name(annotation)} cannot be stored; keys of a mapping must be text, numbers, enums, dates or UUIDs")


def _refused(annotation: Any) -> TypeError:
    return TypeError(
        f"{_name(annotation)} cannot be stored; use JSON types, dataclasses, enums, dates, Decimal, UUID, lists, dicts, or a "
        f"pydantic, attrs or msgspec class"
    )


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
