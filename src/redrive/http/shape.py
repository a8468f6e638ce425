"""Shape: a JSON answer as the type that the caller wants. What does not fit says where.

Fields that the type does not have are left out: a server may add some. Nothing is converted: "7" is no int.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

from ..core.codec import codec
from ..core.codec import misfit as without_input

Reader: TypeAlias = Callable[[Any, str], Any]
"""From JSON data, and where it stands, to the value."""
_LISTS: dict[Any, Callable[[Iterable[Any]], Any]] = {
    **dict.fromkeys((list, Sequence, Iterable, Collection), list),
    **{kind: kind for kind in (tuple, set, frozenset)},
}


class Misfit(ValueError):
    """An answer that is not of the shape that was asked for."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")


def reader(into: Any, /) -> Callable[[Any], Any]:
    """What reads an answer: by the type, or by the caller's own function. TypeError where it is neither."""
    if isinstance(into, types.FunctionType | types.MethodType | types.BuiltinMethodType):
        return into  # the usual cases of a function, without a look at what a type may be
    try:
        return _typed(into)
    except TypeError as refused:
        if callable(into) and not isinstance(into, type) and typing.get_origin(into) is None:
            found: Callable[[Any], Any] = into
            return found
        raise TypeError(
            f"into= must be the type of the response, or a function that makes it from JSON data: {refused}"
        ) from None


@lru_cache(256)
def _typed(annotation: Any) -> Callable[[Any], Any]:
    read = shape(annotation)
    return lambda data: read(data, "$")


def shape(annotation: Any, /) -> Reader:
    """The reader of an annotation; TypeError where nothing is known of it."""
    return _Shapes().of(annotation)


class _Shapes:
    """Builds the readers of one annotation. Remembers those under way, so that a class may contain itself."""

    def __init__(self) -> None:
        self._known: dict[Any, Reader] = {}

    def of(self, annotation: Any) -> Reader:
        if annotation not in self._known:
            self._known[annotation] = self._later(annotation)
            self._known[annotation] = self._built(annotation)
        return self._known[annotation]

    def _later(self, annotation: Any) -> Reader:
        def read(data: Any, where: str) -> Any:
            return self._known[annotation](data, where)

        return read

    def _built(self, annotation: Any) -> Reader:
        if annotation in (Any, object):
            return lambda data, _: data
        kind, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
        if kind is typing.Annotated:
            return self.of(arguments[0])
        if kind in (typing.Union, types.UnionType):
            return _either([(each, self.of(each)) for each in arguments])
        if kind is tuple and arguments and arguments[-1] is not Ellipsis:
            return _fixed([self.of(each) for each in arguments])
        if kind in _LISTS:
            return _list(_LISTS[kind], self.of(arguments[0] if arguments else Any))
        if kind in (dict, Mapping):
            key, value = arguments or (str, Any)
            return _mapping(codec(dict[key, Any]), self.of(value))  # type: ignore[valid-type]  # known only here
        return self._class(kind, annotation) or _single(annotation)

    def _class(self, kind: Any, annotation: Any) -> Reader | None:
        if not isinstance(kind, type):
            return None
        if hasattr(kind, "model_validate"):
            return _pydantic(kind)
        if hasattr(kind, "__struct_fields__"):
            return _msgspec(annotation)
        hints = typing.get_type_hints(kind) if hasattr(kind, "__annotations__") else {}
        variables = dict(zip(getattr(kind, "__parameters__", ()), typing.get_args(annotation), strict=False))
        readers = {name: self.of(_filled(hint, variables)) for name, hint in hints.items() if _is_record(kind)}
        if typing.is_typeddict(kind):
            return _record(kind.__name__, dict, readers, _needed(kind))
        if dataclasses.is_dataclass(kind):
            fields = {field.name for field in dataclasses.fields(kind) if field.init}
            needed = {f.name for f in dataclasses.fields(kind) if f.init and _required(f, dataclasses.MISSING)}
            return _record(kind.__name__, kind, {name: read for name, read in readers.items() if name in fields}, needed)
        if hasattr(kind, "__attrs_attrs__"):
            own = [each for each in kind.__attrs_attrs__ if each.init]
            needed = {each.name for each in own if each.default is sys.modules["attr"].NOTHING}
            aliases = {each.name: each.alias for each in own}
            return _record(kind.__name__, kind, {name: readers.get(name, _any) for name in aliases}, needed, aliases)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            needed = set(kind._fields) - set(kind._field_defaults)  # type: ignore[attr-defined]  # a NamedTuple has them
            return _record(kind.__name__, kind, readers, needed)
        return None


def _is_record(kind: type) -> bool:
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return typing.is_typeddict(kind) or dataclasses.is_dataclass(kind) or hasattr(kind, "__attrs_attrs__") or named


def _filled(hint: Any, variables: dict[Any, Any]) -> Any:
    """The hint of a generic class's field, with its type variables told."""
    if hint in variables:
        return variables[hint]
    inside = getattr(hint, "__parameters__", ())
    return hint[tuple(variables.get(each, each) for each in inside)] if inside and variables else hint


def _needed(kind: Any) -> set[str]:
    """The keys that a TypedDict must have. `__required_keys__` takes an annotation that is still text for a required one."""
    told = {name: typing.get_origin(hint) for name, hint in typing.get_type_hints(kind, include_extras=True).items()}
    return {n for n, how in told.items() if how is typing.Required or (kind.__total__ and how is not typing.NotRequired)}


def _required(field: Any, missing: object) -> bool:
    return field.default is missing and field.default_factory is missing


def _any(data: Any, _: str) -> Any:
    return data


def _single(annotation: Any) -> Reader:
    """A single value, as the codec of stored values reads it."""
    load = codec(annotation).load
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)

    def read(data: Any, where: str) -> Any:
        try:
            return load(str(data) if annotation is Decimal and isinstance(data, (int, float)) else data)
        except Exception:  # each type refuses in its own way, and quotes the value
            raise Misfit(where, f"expected {name}, not {_said(data)}") from None

    return read


def _list(make: Callable[[Iterable[Any]], Any], item: Reader) -> Reader:
    def read(data: Any, where: str) -> Any:
        if not isinstance(data, list):
            raise Misfit(where, f"expected a list, not {_said(data)}")
        return make(item(each, f"{where}[{n}]") for n, each in enumerate(data))

    return read


def _fixed(items: list[Reader]) -> Reader:
    def read(data: Any, where: str) -> Any:
        if not isinstance(data, list) or len(data) != len(items):
            raise Misfit(where, f"expected a list of {len(items)}, not {_said(data)}")
        return tuple(item(each, f"{where}[{n}]") for n, (item, each) in enumerate(zip(items, data, strict=True)))

    return read


def _mapping(keys: Any, value: Reader) -> Reader:
    def read(data: Any, where: str) -> Any:
        if not isinstance(data, dict):
            raise Misfit(where, f"expected an object, not {_said(data)}")
        found = {}
        for name, each in data.items():
            try:
                (key,) = keys.load({name: None})
            except Exception:  # each type refuses in its own way
                raise Misfit(where, "a key does not have the expected type") from None
            found[key] = value(each, f"{where}.*")  # a key of a mapping is data, too
        return found

    return read


def _record(
    name: str, make: Any, fields: dict[str, Reader], needed: Collection[str], aliases: Mapping[str, str] | None = None
) -> Reader:
    def read(data: Any, where: str) -> Any:
        if not isinstance(data, dict):
            raise Misfit(where, f"expected an object for {name}, not {_said(data)}")
        for field in needed:
            if field not in data:
                raise Misfit(f"{where}.{field}", "missing")
        known = {field: fields[field](data[field], f"{where}.{field}") for field in fields if field in data}
        try:
            return make(**{(aliases or {}).get(field, field): value for field, value in known.items()})
        except Exception as wrong:  # a check of the class's own
            raise _placed(where, wrong, make) from None

    return read


def _either(members: list[tuple[Any, Reader]]) -> Reader:
    def read(data: Any, where: str) -> Any:
        if data is None and any(annotation is type(None) for annotation, _ in members):
            return None
        misfits = []
        for annotation, member in members:
            if annotation is type(None):
                continue
            try:
                return member(data, where)
            except Misfit as misfit:
                misfits.append(str(misfit))
        raise Misfit(where, misfits[0].removeprefix(f"{where}: ") if len(misfits) == 1 else "; or ".join(misfits))

    return read


def _pydantic(kind: Any) -> Reader:
    def read(data: Any, where: str) -> Any:
        try:
            return kind.model_validate(data)
        except Exception as wrong:  # its own text would have the answer's values in it
            raise _placed(where, wrong, kind) from None

    return read


def _msgspec(kind: Any) -> Reader:
    def read(data: Any, where: str) -> Any:
        msgspec = sys.modules["msgspec"]  # there is one, since the caller's class comes from it
        try:
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as wrong:
            raise _placed(where, wrong, kind) from None

    return read


def _placed(where: str, wrong: Exception, kind: Any) -> Misfit:
    """A class's refusal, without the value."""
    found = without_input(wrong, kind)
    joint = "." if found.where and not found.where.startswith("[") else ""
    return Misfit(f"{where}{joint}{found.where}", found.problem)


def _said(data: object) -> str:
    """What kind of JSON it is; not the value, which may be a secret."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(data), "a number")
