"""Arguments: converts the arguments of a function to JSON and back, by their annotations."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from .codec import codec
from .misfit import misfit, shown_name, within
from .scalars import Codec


class Arguments:
    """Converts the arguments of one function. It is checked when the function is decorated.

    Immutable: threads may share one.
    """

    __slots__ = ("_codecs", "_name", "_signature")

    def __init__(self, fn: Callable[..., Any], /, *, skip: int = 0) -> None:
        """Create the codecs of the parameters.

        Args:
            fn: The function.
            skip: Number of leading parameters that the caller passes and that are not stored.

        Raises:
            TypeError: A parameter has no annotation, or its values cannot be stored.
        """
        self._name = getattr(fn, "__qualname__", repr(fn))
        signature = inspect.signature(fn)
        stored = list(signature.parameters.values())[skip:]
        self._signature = signature.replace(parameters=stored)
        try:
            hints = typing.get_type_hints(fn, include_extras=True)
        except (NameError, TypeError, AttributeError) as problem:
            raise TypeError(f"{self._name}: its annotations cannot be read: {problem}") from None
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
            raise TypeError(f"{self._name}: {problem}; it takes {self._signature}") from None

    def load(self, stored: Mapping[str, Any], /) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a stored call. TypeError if they no longer fit the function."""
        unknown = stored.keys() - self._codecs.keys()
        if unknown:
            names = ", ".join(sorted({shown_name(name) for name in unknown})[:10])
            raise TypeError(f"{self._name} has no parameter {names}, but the stored call does")
        call = inspect.BoundArguments(self._signature, {})
        for name, parameter in self._signature.parameters.items():
            if name in stored:
                try:
                    call.arguments[name] = self._codecs[name].load(stored[name])
                except Exception as problem:
                    raise within(name, problem) from None
            elif _is_required(parameter):
                raise TypeError(
                    f"{self._name} needs {name!r}, but the stored call does not have it"
                )
        return call.args, call.kwargs


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
