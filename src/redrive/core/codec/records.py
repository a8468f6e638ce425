"""Codecs of classes with fields: dataclasses, TypedDict, NamedTuple, pydantic, attrs, msgspec."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable
from typing import Any, TypeAlias

from .misfit import misfit, unfit, within
from .scalars import Codec

CodecOf: TypeAlias = Callable[[Any], Codec]


class RecordCodec:
    """Stores the fields of a class by name, each by its annotation."""

    def __init__(
        self, kind: type, fields: dict[str, Codec], aliases: dict[str, str] | None = None
    ) -> None:
        self._kind = kind
        self._fields = fields
        self._aliases = aliases or {}

    def dump(self, value: Any, /) -> Any:
        """Return an object of its fields."""
        if not isinstance(value, self._kind):
            raise unfit(self._kind.__name__, value)
        stored, name = {}, ""
        try:
            for name, codec in self._fields.items():
                stored[name] = codec.dump(getattr(value, name))
        except Exception as problem:
            raise within(name, problem) from None
        return stored

    def load(self, data: Any, /) -> Any:
        """Return the object. A new field that has a default may be missing."""
        if not isinstance(data, dict):
            raise unfit("an object", data)
        values, aliases, name = {}, self._aliases, ""
        try:
            for name, codec in self._fields.items():
                if name in data:
                    values[aliases.get(name, name)] = codec.load(data[name])
        except Exception as problem:
            raise within(name, problem) from None
        try:
            return self._kind(**values)
        except Exception as problem:  # a check of the class itself
            raise misfit(problem, self._kind) from None


class TypedDictionary:
    """Stores a TypedDict."""

    def __init__(self, kind: Any, fields: dict[str, Codec]) -> None:
        self._kind = kind
        self._fields = fields
        # Not `__required_keys__`, which treats annotations that are still text as required.
        hints = typing.get_type_hints(kind, include_extras=True)
        origins = {name: typing.get_origin(hint) for name, hint in hints.items()}
        self._required = {
            name
            for name, origin in origins.items()
            if origin is typing.Required or (kind.__total__ and origin is not typing.NotRequired)
        }

    def dump(self, value: Any, /) -> Any:
        """Return an object of its fields."""
        if not isinstance(value, dict) or not self._required <= value.keys() <= self._fields.keys():
            raise unfit(f"{self._kind.__name__} with {', '.join(self._fields)}", value)
        return self._convert("dump", value)

    def load(self, data: Any, /) -> Any:
        """Return the dict."""
        if not isinstance(data, dict):
            raise unfit("an object", data)
        return self._convert("load", data)

    def _convert(
        self, way: typing.Literal["dump", "load"], value: dict[str, Any]
    ) -> dict[str, Any]:
        converted, name = {}, ""
        try:
            for name, item in value.items():
                if name in self._fields:
                    converted[name] = getattr(self._fields[name], way)(item)
        except Exception as problem:
            raise within(name, problem) from None
        return converted


class Pydantic:
    """Stores a pydantic model as pydantic does."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def dump(self, value: Any, /) -> Any:
        """Return the JSON of pydantic."""
        if not isinstance(value, self._kind):
            raise unfit(self._kind.__name__, value)
        try:
            return value.model_dump(mode="json")
        except Exception as problem:
            raise misfit(problem, self._kind) from None

    def load(self, data: Any, /) -> Any:
        """Return the validated model."""
        try:
            return self._kind.model_validate(data)
        except Exception as problem:  # a validator may raise anything
            raise misfit(problem, self._kind) from None


class Msgspec:
    """Stores a msgspec struct as msgspec does."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def dump(self, value: Any, /) -> Any:
        """Return the JSON of msgspec."""
        if not isinstance(value, self._kind):
            raise unfit(self._kind.__name__, value)
        try:
            return _msgspec().to_builtins(value)
        except Exception as problem:
            raise misfit(problem) from None

    def load(self, data: Any, /) -> Any:
        """Return the validated struct."""
        try:
            return _msgspec().convert(data, self._kind)
        except Exception as problem:
            raise misfit(problem) from None


def _msgspec() -> Any:
    return sys.modules["msgspec"]  # imported, because the class comes from it


def codec_of(annotation: Any, codec_for: CodecOf) -> Codec | None:
    """Return the codec of a class with fields. None if the annotation is not one."""
    kind = typing.get_origin(annotation) or annotation
    if not isinstance(kind, type):
        return None
    if hasattr(kind, "model_validate") and hasattr(kind, "model_dump"):
        return Pydantic(annotation if isinstance(annotation, type) else kind)
    if hasattr(kind, "__struct_fields__"):
        return Msgspec(kind)
    if typing.is_typeddict(kind):
        return TypedDictionary(kind, _codecs(kind, annotation, codec_for))
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.init]
        return RecordCodec(kind, _codecs(kind, annotation, codec_for, names))
    if hasattr(kind, "__attrs_attrs__"):
        attributes = kind.__attrs_attrs__
        aliases = {field.name: field.alias for field in attributes if field.init}
        return RecordCodec(kind, _codecs(kind, annotation, codec_for, list(aliases)), aliases)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return RecordCodec(kind, _codecs(kind, annotation, codec_for, list(kind._fields)))
    return None


def _codecs(
    kind: Any, annotation: Any, codec_for: CodecOf, names: list[str] | None = None
) -> dict[str, Codec]:
    hints = typing.get_type_hints(kind)
    variables = dict(
        zip(getattr(kind, "__parameters__", ()), typing.get_args(annotation), strict=False)
    )
    codecs: dict[str, Codec] = {}
    for name in hints if names is None else names:
        try:
            codecs[name] = codec_for(_substitute(hints.get(name, Any), variables))
        except TypeError as problem:
            raise TypeError(f"{kind.__qualname__}.{name}: {problem}") from None
    return codecs


def _substitute(hint: Any, variables: dict[Any, Any]) -> Any:
    """Return the hint of a field of a generic class, with its type variables replaced."""
    if hint in variables:
        return variables[hint]
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or not variables:
        return hint
    return hint[tuple(variables.get(parameter, parameter) for parameter in parameters)]
