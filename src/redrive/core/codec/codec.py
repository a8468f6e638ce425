"""codec: returns the codec of an annotation."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from . import containers, records, scalars
from .scalars import Codec


def codec(annotation: Any, /) -> Codec:
    """Return the codec of an annotation. TypeError if its values cannot be stored."""
    return _Builder().of(annotation)


class _Builder:
    """Builds the codec of one annotation. It handles classes that contain themselves."""

    def __init__(self) -> None:
        self._codecs: dict[Any, Codec] = {}

    def of(self, annotation: Any) -> Codec:
        try:
            codec = self._codecs.get(annotation)
        except TypeError:  # an annotation that cannot be hashed, such as Literal[[]]
            raise _not_storable(annotation) from None
        if codec is not None:
            return codec
        deferral = containers.Deferral()
        self._codecs[annotation] = deferral
        deferral.codec = self._build(annotation)
        self._codecs[annotation] = deferral.codec
        return deferral.codec

    def _build(self, annotation: Any) -> Codec:
        if annotation in (Any, object, Ellipsis):
            return scalars.ANY
        scalar = scalars.codec_of(annotation)
        if scalar is not None:
            return scalar
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is not None:
            return self._build_generic(annotation, origin, arguments)
        inner = _aliased(annotation)
        if inner is not None:
            return self.of(inner)
        if annotation in _WITHOUT_ARGUMENTS:
            return self.of(_WITHOUT_ARGUMENTS[annotation])
        record = records.codec_of(annotation, self.of)
        if record is not None:
            return record
        raise _not_storable(annotation)

    def _build_generic(self, annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> Codec:
        if origin is typing.Annotated:
            return self.of(arguments[0])
        if origin is typing.Literal:
            return scalars.Literal(arguments)
        if origin in (typing.Union, types.UnionType):
            return containers.union([(member, self.of(member)) for member in arguments])
        if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            return containers.FixedTuple(tuple(self.of(item) for item in arguments))
        if origin in _SEQUENCES:
            return containers.Sequence(_SEQUENCES[origin], self.of(arguments[0]))
        if origin in _MAPPINGS:
            key = scalars.key_codec(arguments[0])
            if key is None:
                raise TypeError(
                    f"{_name(annotation)} cannot be stored; "
                    "keys of a mapping must be text, numbers, enums, dates or UUIDs"
                )
            return containers.Mapping(key, self.of(arguments[1]))
        record = records.codec_of(annotation, self.of)
        if record is not None:
            return record
        raise _not_storable(annotation)


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
_WITHOUT_ARGUMENTS: dict[Any, Any] = {
    list: list[Any],
    tuple: tuple[Any, ...],
    set: set[Any],
    frozenset: frozenset[Any],
    dict: dict[str, Any],
}


def _aliased(annotation: Any) -> Any:
    """Return the type behind a NewType, a type alias or a type variable."""
    if isinstance(annotation, typing.NewType):
        return annotation.__supertype__
    if isinstance(annotation, typing.TypeVar):
        return annotation.__bound__ or Any
    return getattr(annotation, "__value__", None)  # `type Name = ...`, from Python 3.12 on


def _not_storable(annotation: Any) -> TypeError:
    return TypeError(
        f"{_name(annotation)} cannot be stored; use JSON types, dataclasses, enums, dates, "
        "Decimal, UUID, lists, dicts, or a pydantic, attrs or msgspec class"
    )


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
