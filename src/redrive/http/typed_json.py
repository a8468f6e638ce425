"""Convert a JSON response to the type that the caller passes as `into=`.

Unknown fields are ignored, because a server may add some. Values are not coerced: "7" is not an
int. `core.codec` reads only single values here: for a union it expects the tag that it stores, it
accepts a TypedDict without its required keys, and its errors name Python types.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import repeat
from typing import Any, TypeAlias

from ..core.codec import codec
from ..core.codec import misfit as misfit_without_input
from ..core.codec.codec import SEQUENCE_TYPES
from ..core.codec.records import RecordFields, record_fields

Reader: TypeAlias = Callable[[Any], Any]
"""Converts JSON data to a value, or raises `JsonMismatch`."""
_JSON_TYPES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    type(None): "null",
}


class JsonMismatch(ValueError):
    """A response does not have the requested type. Errors never contain the response's values.

    The path of the wrong value grows while the exception leaves the readers of the surrounding
    values. A response that fits costs no path.
    """

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.path = path
        self.problems = [(path, problem)]
        """Path and problem of each rejected type. More than one for a union."""

    @classmethod
    def of_union(cls, mismatches: list[JsonMismatch]) -> JsonMismatch:
        """Return the mismatch of a union from those of its members."""
        if len(mismatches) == 1:
            return mismatches[0]
        union = cls("")
        union.problems = [problem for mismatch in mismatches for problem in mismatch.problems]
        return union

    def inside(self, part: str) -> JsonMismatch:
        """Return the mismatch as seen from the list or object that contains the value."""
        self.path = part + self.path
        self.problems = [(part + path, problem) for path, problem in self.problems]
        return self

    def __str__(self) -> str:
        problems = [f"${path}: {problem}" for path, problem in self.problems]
        return problems[0] if len(problems) == 1 else f"${self.path}: {'; or '.join(problems)}"


def json_reader(into: Any, /) -> Reader:
    """Return the function that reads a response.

    Args:
        into: A type, or the caller's own function of the JSON data.

    Raises:
        TypeError: `into` is neither.
    """
    if isinstance(into, types.FunctionType | types.MethodType | types.BuiltinMethodType):
        return into
    try:
        return _cached_reader(into)
    except TypeError as refusal:
        if callable(into) and not isinstance(into, type) and typing.get_origin(into) is None:
            function: Reader = into
            return function
        raise TypeError(
            "into= must be the type of the response, or a function that makes it from JSON data: "
            f"{refusal}"
        ) from None


@lru_cache(256)
def _cached_reader(annotation: Any) -> Reader:
    return _ReaderBuilder().reader(annotation)


class _ReaderBuilder:
    """Builds the readers of one annotation. A class may contain itself."""

    def __init__(self) -> None:
        self._readers: dict[Any, Reader] = {}

    def reader(self, annotation: Any) -> Reader:
        if annotation not in self._readers:
            self._readers[annotation] = self._defer(annotation)
            self._readers[annotation] = self._build(annotation)
        return self._readers[annotation]

    def _defer(self, annotation: Any) -> Reader:
        """Stand in for a reader that is still being built."""

        def read(data: Any) -> Any:
            return self._readers[annotation](data)

        return read

    def _build(self, annotation: Any) -> Reader:
        if annotation in (Any, object):
            return _read_any
        origin, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
        if origin is typing.Annotated:
            return self.reader(arguments[0])
        if origin in (typing.Union, types.UnionType):
            return _union_reader([(member, self.reader(member)) for member in arguments])
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            return _tuple_reader([self.reader(item) for item in arguments])
        if origin in SEQUENCE_TYPES:
            return _list_reader(
                SEQUENCE_TYPES[origin], self.reader(arguments[0] if arguments else Any)
            )
        if origin in (dict, Mapping):
            key, value = arguments or (str, Any)
            key_codec = codec(dict[key, Any])  # type: ignore[valid-type]  # known only at run time
            return _mapping_reader(key_codec, self.reader(value))
        return self._class_reader(origin, annotation) or _scalar_reader(annotation)

    def _class_reader(self, cls: Any, annotation: Any) -> Reader | None:
        if not isinstance(cls, type):
            return None
        if hasattr(cls, "model_validate"):
            return _pydantic_reader(cls)
        if hasattr(cls, "__struct_fields__"):
            return _msgspec_reader(annotation)
        fields = record_fields(annotation)
        if fields is None:
            return None
        readers = {name: self.reader(hint) for name, hint in fields.annotations.items()}
        return _record_reader(cls, readers, fields)


def _read_any(data: Any) -> Any:
    return data


def _scalar_reader(annotation: Any) -> Reader:
    """Return the reader of a single value, which `core.codec` reads."""
    load = codec(annotation).load
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)

    def read(data: Any) -> Any:
        try:
            return load(data)
        except Exception:  # Each type raises its own error, which may quote the value.
            raise JsonMismatch(f"expected {name}, not {_json_type(data)}") from None

    def read_decimal(data: Any) -> Any:
        return read(str(data) if isinstance(data, (int, float)) else data)

    return read_decimal if annotation is Decimal else read


def _read_items(readers: Iterable[Reader], data: list[Any]) -> list[Any]:
    items: list[Any] = []
    try:
        for read_item, item in zip(readers, data, strict=False):
            items.append(read_item(item))  # Its length tells where an item failed.
    except JsonMismatch as mismatch:
        raise mismatch.inside(f"[{len(items)}]") from None
    return items


def _list_reader(make: Callable[[Iterable[Any]], Any], read_item: Reader) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, list):
            raise JsonMismatch(f"expected a list, not {_json_type(data)}")
        return make(_read_items(repeat(read_item), data))

    return read


def _tuple_reader(readers: list[Reader]) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, list) or len(data) != len(readers):
            raise JsonMismatch(f"expected a list of {len(readers)}, not {_json_type(data)}")
        return tuple(_read_items(readers, data))

    return read


def _mapping_reader(key_codec: Any, read_value: Reader) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise JsonMismatch(f"expected an object, not {_json_type(data)}")
        result = {}
        for name, value in data.items():
            try:
                (key,) = key_codec.load({name: None})
            except Exception:  # Each type raises its own error.
                raise JsonMismatch("a key does not have the expected type") from None
            try:
                result[key] = read_value(value)
            except JsonMismatch as mismatch:
                raise mismatch.inside(".*") from None  # The key is data, too.
        return result

    return read


def _record_reader(cls: Any, readers: dict[str, Reader], fields: RecordFields) -> Reader:
    """Return the reader of a class with named fields."""
    make = dict if typing.is_typeddict(cls) else cls
    name, aliases = cls.__name__, fields.aliases
    required = [field for field in readers if field in fields.required]

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise JsonMismatch(f"expected an object for {name}, not {_json_type(data)}")
        for field in required:
            if field not in data:
                raise JsonMismatch("missing", f".{field}")
        values, field = {}, ""
        try:
            for field, read_field in readers.items():
                if field in data:
                    values[aliases.get(field, field)] = read_field(data[field])
        except JsonMismatch as mismatch:
            raise mismatch.inside(f".{field}") from None
        try:
            return make(**values)
        except Exception as error:  # of a check in the class
            raise _rejected_by(make, error) from None

    return read


def _union_reader(members: list[tuple[Any, Reader]]) -> Reader:
    accepts_null = any(annotation is type(None) for annotation, _ in members)
    readers = [reader for annotation, reader in members if annotation is not type(None)]

    def read(data: Any) -> Any:
        if data is None and accepts_null:
            return None
        mismatches = []
        for read_member in readers:
            try:
                return read_member(data)
            except JsonMismatch as mismatch:
                mismatches.append(mismatch)
        raise JsonMismatch.of_union(mismatches)

    return read


def _pydantic_reader(cls: Any) -> Reader:
    def read(data: Any) -> Any:
        try:
            return cls.model_validate(data)
        except Exception as error:  # Its text quotes values of the response.
            raise _rejected_by(cls, error) from None

    return read


def _msgspec_reader(annotation: Any) -> Reader:
    msgspec = sys.modules["msgspec"]  # Imported already, because the caller's class is from it.

    def read(data: Any) -> Any:
        try:
            return msgspec.convert(data, annotation)
        except msgspec.ValidationError as error:
            raise _rejected_by(annotation, error) from None

    return read


def _rejected_by(cls: Any, error: Exception) -> JsonMismatch:
    """Return the mismatch for an error of a class, without the value."""
    misfit = misfit_without_input(error, cls)
    separator = "." if misfit.where and not misfit.where.startswith("[") else ""
    return JsonMismatch(misfit.problem, f"{separator}{misfit.where}")


def _json_type(data: object) -> str:
    """Return the JSON type. Not the value, which may be a secret."""
    return _JSON_TYPES.get(type(data), "a number")
