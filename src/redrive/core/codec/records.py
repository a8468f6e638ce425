"""Classes with named fields: dataclasses, TypedDict, NamedTuple; pydantic, attrs and msgspec where they are used."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable
from typing import Any, TypeAlias

from .misfit import misfit, unfit, within
from .protocol import Codec

Of: TypeAlias = Callable[[Any], Codec]


class Record:
    """A class whose fields are stored by name, each by its own annotation."""

    def __init__(self, kind: type, fields: dict[str, Codec], aliases: dict[str, str] | None = None) -> None:
        self._kind = kind
        self._fields = fields
        self._aliases = aliases or {}

    def dump(self, value: Any, /) -> Any:
        """An object of its fields."""
        if not isinstance(value, self._kind):
            raise unfit(self._kind.__name__, value)
        stored, name = {}, ""
        try:
            for name, codec in self._fields.items():
                stored[name] = codec.dump(getattr(value, name))
        except Exception as wrong:
            raise within(name, wrong) from None
        return stored

    def load(self, data: Any, /) -> Any:
        """The object; a field that was added since, and has a default, may be missing."""
        if not isinstance(data, dict):
            raise unfit("an object", data)
        given, aliases, name = {}, self._aliases, ""
        try:
            for name, codec in self._fields.items():
                if name in data:
                    given[aliases.get(name, name)] = codec.load(data[name])
        except Exception as wrong:
            raise within(name, wrong) from None
        try:
            return self._kind(**given)
        except Exception as wrong:  # a check of the class's own
            raise misfit(wrong, self._kind) from None


class Typed:
    """A TypedDict."""

    def __init__(self, kind: Any, fields: dict[str, Codec]) -> None:
        self._kind = kind
        self._fields = fields
        # Not `__required_keys__`: it takes an annotation that is still text for a required one.
        hints = typing.get_type_hints(kind, include_extras=True)
        told = {name: typing.get_origin(hint) for name, hint in hints.items()}
        self._needed = {
            n for n, how in told.items() if how is typing.Required or (kind.__total__ and how is not typing.NotRequired)
        }

    def dump(self, value: Any, /) -> Any:
        """An object of its fields."""
        if not isinstance(value, dict) or not self._needed <= value.keys() <= self._fields.keys():
            raise unfit(f"{self._kind.__name__} with {', '.join(self._fields)}", value)
        return self._converted("dump", value)

    def load(self, data: Any, /) -> Any:
        """The dict."""
        if not isinstance(data, dict):
            raise unfit("an object", data)
        return self._converted("load", data)

    def _converted(self, way: typing.Literal["dump", "load"], value: dict[str, Any]) -> dict[str, Any]:
        converted, name = {}, ""
        try:
            for name, each in value.items():
                if name in self._fields:
                    converted[name] = getattr(self._fields[name], way)(each)
        except Exception as wrong:
            raise within(name, wrong) from None
        return converted


class Pydantic:
    """A pydantic model: it knows best."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def dump(self, value: Any, /) -> Any:
        """As pydantic writes JSON."""
        if not isinstance(value, self._kind):
            raise unfit(self._kind.__name__, value)
        try:
            return value.model_dump(mode="json")
        except Exception as wrong:
            raise misfit(wrong, self._kind) from None

    def load(self, data: Any, /) -> Any:
        """The model, validated."""
        try:
            return self._kind.model_validate(data)
        except Exception as wrong:  # its text quotes the input; a validator of the user's may raise anything
            raise misfit(wrong, self._kind) from None


class Msgspec:
    """A msgspec struct: it knows best."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def dump(self, value: Any, /) -> Any:
        """As msgspec writes JSON."""
        if not isinstance(value, self._kind):
            raise unfit(self._kind.__name__, value)
        try:
            return _msgspec().to_builtins(value)
        except Exception as wrong:
            raise misfit(wrong) from None

    def load(self, data: Any, /) -> Any:
        """The struct, validated."""
        try:
            return _msgspec().convert(data, self._kind)
        except Exception as wrong:
            raise misfit(wrong) from None


def _msgspec() -> Any:
    return sys.modules["msgspec"]  # there is one, since the user's class comes from it


def codec_of(annotation: Any, of: Of) -> Codec | None:
    """The codec of a class with fields; None where it is none."""
    kind = typing.get_origin(annotation) or annotation
    if not isinstance(kind, type):
        return None
    if hasattr(kind, "model_validate") and hasattr(kind, "model_dump"):
        return Pydantic(annotation if isinstance(annotation, type) else kind)
    if hasattr(kind, "__struct_fields__"):
        return Msgspec(kind)
    if typing.is_typeddict(kind):
        return Typed(kind, _codecs(kind, annotation, of))
    if dataclasses.is_dataclass(kind):
        kept = [field.name for field in dataclasses.fields(kind) if field.init]
        return Record(kind, _codecs(kind, annotation, of, kept))
    if hasattr(kind, "__attrs_attrs__"):
        attributes = [each for each in kind.__attrs_attrs__ if each.init]
        aliases = {each.name: each.alias for each in attributes}
        return Record(kind, _codecs(kind, annotation, of, list(aliases)), aliases)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return Record(kind, _codecs(kind, annotation, of, list(kind._fields)))
    return None


def _codecs(kind: Any, annotation: Any, of: Of, names: list[str] | None = None) -> dict[str, Codec]:
    hints = typing.get_type_hints(kind)
    variables = dict(zip(getattr(kind, "__parameters__", ()), typing.get_args(annotation), strict=False))
    found: dict[str, Codec] = {}
    for name in hints if names is None else names:
        try:
            found[name] = of(_filled(hints.get(name, Any), variables))
        except TypeError as refusal:
            raise TypeError(f"{kind.__qualname__}.{name}: {refusal}") from None
    return found


def _filled(hint: Any, variables: dict[Any, Any]) -> Any:
    """The hint of a generic class's field, with its type variables told."""
    if hint in variables:
        return variables[hint]
    inside = getattr(hint, "__parameters__", ())
    return hint[tuple(variables.get(each, each) for each in inside)] if inside and variables else hint
