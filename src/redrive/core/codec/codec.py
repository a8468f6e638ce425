"""codec: returns the codec of an annotation. Arguments: the codecs of a function's parameters.

`to_bytes` and `from_bytes` are the JSON of stored values: strict, compact, in UTF-8.
"""

from __future__ import annotations

import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ..callables import describe_problem, function_name, signature_text
from . import records, values
from .misfit import misfit, shown_name, within
from .values import Codec


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
        deferral = values.Deferral()
        self._codecs[annotation] = deferral
        deferral.codec = self._build(annotation)
        self._codecs[annotation] = deferral.codec
        return deferral.codec

    def _build(self, annotation: Any) -> Codec:
        if annotation in (Any, object, Ellipsis):
            return values.ANY
        scalar = values.codec_of(annotation)
        if scalar is not None:
            return scalar
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is not None:
            return self._build_generic(annotation, origin, arguments)
        inner = _alias_target(annotation)
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
            return values.Literal(arguments)
        if origin in (typing.Union, types.UnionType):
            return values.union([(member, self.of(member)) for member in arguments])
        if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            return values.FixedTuple(tuple(self.of(item) for item in arguments))
        if origin in SEQUENCE_TYPES:
            return values.Sequence(SEQUENCE_TYPES[origin], self.of(arguments[0]))
        if origin in _MAPPINGS:
            key = values.key_codec(arguments[0])
            if key is None:
                raise TypeError(
                    f"{_name(annotation)} cannot be stored; "
                    "keys of a mapping must be text, numbers, enums, dates or UUIDs"
                )
            return values.Mapping(key, self.of(arguments[1]))
        record = records.codec_of(annotation, self.of)
        if record is not None:
            return record
        raise _not_storable(annotation)


SEQUENCE_TYPES: dict[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    Sequence: list,
    Iterable: list,
    Collection: list,
}
"""Constructor of a sequence by its annotation."""
_MAPPINGS = (dict, Mapping)
MAX_PROBLEMS = 10
"""Arguments of a stored call that an error names."""
_WITHOUT_ARGUMENTS: dict[Any, Any] = {
    list: list[Any],
    tuple: tuple[Any, ...],
    set: set[Any],
    frozenset: frozenset[Any],
    dict: dict[str, Any],
}


def _alias_target(annotation: Any) -> Any:
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


class Arguments:
    """Converts the arguments of one function. It is checked when the function is decorated.

    Immutable: threads may share one.
    """

    __slots__ = ("_codecs", "_name", "_signature", "signature")

    def __init__(self, fn: Callable[..., Any], /, *, skip: int = 0) -> None:
        """Create the codecs of the parameters.

        Args:
            fn: The function.
            skip: Number of leading parameters that the caller passes and that are not stored.

        Raises:
            TypeError: A parameter has no annotation, or its values cannot be stored.
        """
        self._name = function_name(fn)
        signature = inspect.signature(fn)
        stored = list(signature.parameters.values())[skip:]
        self._signature = signature.replace(parameters=stored)
        self.signature = signature_text(fn, skip=skip)
        try:
            hints = typing.get_type_hints(fn, include_extras=True)
        except (NameError, TypeError, AttributeError) as problem:
            message = describe_problem(problem, fn)
            raise TypeError(f"{self._name}: its annotations cannot be read: {message}") from None
        for name in list(signature.parameters)[:skip]:
            if _is_storable(hints.get(name, Any)):
                raise TypeError(
                    f"{self._name}: in_transaction=True passes a connection first; "
                    f"annotate {name!r} as one"
                )
        self._codecs: dict[str, Codec] = {}
        for index, (name, parameter) in enumerate(self._signature.parameters.items()):
            if index == 0 and name in ("self", "cls") and name not in hints:
                raise TypeError(
                    f"{self._name}: {name} cannot be stored; "
                    "use a function, and pass the values that it needs of the object"
                )
            if name not in hints:
                raise TypeError(
                    f"{self._name}: the parameter {name!r} has no annotation, so it cannot be "
                    "stored; add one"
                )
            try:
                self._codecs[name] = codec(_annotation_of(hints[name], parameter))
            except TypeError as problem:
                raise TypeError(f"{self._name}: the parameter {name!r}: {problem}") from None

    def dump(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> dict[str, Any]:
        """Return the arguments of a call as JSON, by name. Defaults are not stored."""
        stored = {}
        for name, value in self.bind(args, kwargs).items():
            try:
                stored[name] = self._codecs[name].dump(value)
            except (TypeError, ValueError, RecursionError) as problem:
                raise TypeError(f"{self._name}: the argument {name!r}: {misfit(problem)}") from None
        return stored

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> dict[str, Any]:
        """Return the arguments of a call by name. A TypeError names the function."""
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as problem:
            raise TypeError(f"{self._name}: {problem}; it takes {self.signature}") from None

    def load(self, stored: Mapping[str, Any], /) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a stored call.

        Raises:
            TypeError: They no longer fit the function. The message names every argument that does
                not fit, up to `MAX_PROBLEMS`.
        """
        problems: list[TypeError] = []
        unknown = stored.keys() - self._codecs.keys()
        if unknown:
            names = ", ".join(sorted({shown_name(name) for name in unknown})[:MAX_PROBLEMS])
            problem = f"{self._name} has no parameter {names}, but the stored call does"
            problems.append(TypeError(problem))
        call = inspect.BoundArguments(self._signature, {})
        for name, parameter in self._signature.parameters.items():
            if name in stored:
                try:
                    call.arguments[name] = self._codecs[name].load(stored[name])
                except Exception as error:
                    problems.append(within(name, error))
            elif _is_required(parameter):
                problem = f"{self._name} needs {name!r}, but the stored call does not have it"
                problems.append(TypeError(problem))
        if not problems:
            return call.args, call.kwargs
        if len(problems) == 1:
            raise problems[0]
        more = ["and more"] if len(problems) > MAX_PROBLEMS else []
        raise TypeError("; ".join([*map(str, problems[:MAX_PROBLEMS]), *more]))


def _is_required(parameter: inspect.Parameter) -> bool:
    is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not is_variadic


def _is_storable(hint: Any) -> bool:
    """Return whether a hint is a type that can be stored, so that it is not a connection."""
    try:
        codec(hint)
    except TypeError:
        return False
    return hint not in (Any, object)


def _annotation_of(hint: Any, parameter: inspect.Parameter) -> Any:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return tuple.__class_getitem__((hint, ...))
    if parameter.kind is parameter.VAR_KEYWORD:
        return dict.__class_getitem__((str, hint))
    return hint


MAX_OUTLINED_NAMES = 20
"""Names of a stored object in an error message."""


def to_bytes(data: Any, /) -> bytes:
    """Return JSON in UTF-8. NaN, infinities and lone surrogates are rejected."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as problem:
        half = text[problem.start]
    # The message names the place, not the text, which may be a secret.
    place = _place_of(data, half) or "it"
    raise ValueError(f"{place} has half a surrogate pair, {half!r}, which cannot be stored")


def _place_of(data: Any, half: str) -> str | None:
    """Return the path of the first text that contains this. Empty: the data itself."""
    if isinstance(data, str):
        return "" if half in data else None
    if isinstance(data, dict):
        for name, value in data.items():
            inner = _place_of(value, half)
            if inner is not None:
                return f"{name}{'.' if inner[:1] not in ('', '[') else ''}{inner}"
            if half in str(name):
                return "a name"
    elif isinstance(data, (list, tuple)):
        for index, value in enumerate(data):
            inner = _place_of(value, half)
            if inner is not None:
                return f"[{index}]{'.' if inner[:1] not in ('', '[') else ''}{inner}"
    return None


def outline(stored: bytes, /) -> str:
    """Return the names and types of stored JSON for an error message, without the values."""
    try:
        data = from_bytes(stored)
    except (ValueError, RecursionError):
        return f"{len(stored)} bytes that are not JSON"
    if not isinstance(data, dict):
        return _kind(data)
    items = list(data.items())[:MAX_OUTLINED_NAMES]
    names = ", ".join(f"{shown_name(name)} ({_kind(value)})" for name, value in items)
    more = ", …" if len(data) > MAX_OUTLINED_NAMES else ""
    return f"an object of {names or 'nothing'}{more}"


def _kind(data: Any) -> str:
    return "null" if data is None else type(data).__name__


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large for a float")
    return number


_decoder: Any = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_finite)
_scan = _decoder.scan_once


def from_bytes(stored: bytes | str, /) -> Any:
    """Return the stored value. NaN, infinities and numbers beyond a float are rejected."""
    if (
        isinstance(stored, str) and stored[:1] in "{["
    ):  # the checks of `loads` take as long as parsing
        try:
            value, end = _scan(stored, 0)
            if end == len(stored):
                return value
        except StopIteration:
            pass  # not JSON: `loads` says where
    return json.loads(stored, parse_constant=_reject_constant, parse_float=_finite)
