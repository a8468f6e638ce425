"""Codecs of classes with fields: dataclasses, TypedDict, NamedTuple, pydantic, attrs, msgspec."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable, Set
from typing import Any, NamedTuple, TypeAlias

from .misfit import misfit, unfit, within
from .values import Codec

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

    def __init__(self, kind: Any, fields: dict[str, Codec], required: Set[str]) -> None:
        self._kind = kind
        self._fields = fields
        self._required = required

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
    fields = record_fields(annotation)
    if fields is None:
        return None
    codecs: dict[str, Codec] = {}
    for name, hint in fields.annotations.items():
        try:
            codecs[name] = codec_for(hint)
        except TypeError as problem:
            raise TypeError(f"{kind.__qualname__}.{name}: {problem}") from None
    if typing.is_typeddict(kind):
        return TypedDictionary(kind, codecs, fields.required)
    return RecordCodec(kind, codecs, fields.aliases)


class RecordFields(NamedTuple):
    """The fields that the constructor of a class takes. Immutable.

    Attributes:
        annotations: Annotation of each field, with type variables replaced.
        required: Fields without a default.
        aliases: Parameters of the constructor by field, if their names differ.
    """

    annotations: dict[str, Any]
    required: Set[str]
    aliases: dict[str, str]


def record_fields(annotation: Any, /) -> RecordFields | None:
    """Return the fields of a TypedDict, dataclass, attrs class or NamedTuple. None for others."""
    kind: Any = typing.get_origin(annotation) or annotation
    aliases: dict[str, str] = {}
    if typing.is_typeddict(kind):
        names = list(typing.get_type_hints(kind))
        required = _required_keys(kind)
    elif dataclasses.is_dataclass(kind):
        fields = [field for field in dataclasses.fields(kind) if field.init]
        names = [field.name for field in fields]
        required = {field.name for field in fields if _has_no_default(field)}
    elif hasattr(kind, "__attrs_attrs__"):
        attributes = [attribute for attribute in kind.__attrs_attrs__ if attribute.init]
        aliases = {attribute.name: attribute.alias for attribute in attributes}
        names = list(aliases)
        nothing = sys.modules["attr"].NOTHING  # imported, because the class comes from it
        required = {attribute.name for attribute in attributes if attribute.default is nothing}
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = list(kind._fields)
        required = set(names) - set(kind._field_defaults)
    else:
        return None
    hints = typing.get_type_hints(kind)
    parameters = getattr(kind, "__parameters__", ())
    variables = dict(zip(parameters, typing.get_args(annotation), strict=False))
    annotations = {name: _substitute(hints.get(name, Any), variables) for name in names}
    return RecordFields(annotations, required, aliases)


def _required_keys(kind: Any) -> set[str]:
    """Return the keys that a TypedDict must have.

    `__required_keys__` is wrong if annotations are text: it ignores NotRequired then.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    origins = {name: typing.get_origin(hint) for name, hint in hints.items()}
    return {
        name
        for name, origin in origins.items()
        if origin is typing.Required or (kind.__total__ and origin is not typing.NotRequired)
    }


def _has_no_default(field: Any) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _substitute(hint: Any, variables: dict[Any, Any]) -> Any:
    """Return the hint of a field of a generic class, with its type variables replaced."""
    if hint in variables:
        return variables[hint]
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or not variables:
        return hint
    return hint[tuple(variables.get(parameter, parameter) for parameter in parameters)]
