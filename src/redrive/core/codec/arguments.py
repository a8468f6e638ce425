"""Arguments: those of a function, stored by their annotations, and given back for the call."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from .codec import codec
from .misfit import misfit, shown_name, within
from .protocol import Codec


class Arguments:
    """How the arguments of one function are stored. Checked when the function is decorated. Immutable: anything may share it."""

    __slots__ = ("_codecs", "_name", "_signature")

    def __init__(self, fn: Callable[..., Any], /, *, skip: int = 0) -> None:
        """TypeError names a parameter whose values cannot be stored, or of which nobody says what they are.

        skip: so many of the first parameters are given by who calls it, and not stored.
        """
        self._name = getattr(fn, "__qualname__", repr(fn))
        whole = inspect.signature(fn)
        self._signature = whole.replace(parameters=list(whole.parameters.values())[skip:])
        try:
            hints = typing.get_type_hints(fn, include_extras=True)
        except (NameError, TypeError, AttributeError) as wrong:
            raise TypeError(f"{self._name}: its annotations cannot be read: {wrong}") from None
        for name in list(whole.parameters)[:skip]:
            if _storable(hints.get(name, Any)):
                raise TypeError(f"{self._name}: in_transaction=True passes a connection first; annotate {name!r} as one")
        self._codecs: dict[str, Codec] = {}
        for at, (name, parameter) in enumerate(self._signature.parameters.items()):
            if at == 0 and name in ("self", "cls") and name not in hints:
                raise TypeError(
                    f"{self._name}: {name} cannot be stored; use a function, and pass the values that it needs of the object"
                )
            if name not in hints:
                raise TypeError(f"{self._name}: the parameter {name!r} has no annotation, so it cannot be stored; add one")
            try:
                self._codecs[name] = codec(_whole(hints[name], parameter))
            except TypeError as refused:
                raise TypeError(f"{self._name}: the parameter {name!r}: {refused}") from None

    def dump(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> dict[str, Any]:
        """What JSON can hold of a call, by name. What was left to its default is left out."""
        stored = {}
        for name, value in self.bind(args, kwargs).items():
            try:
                stored[name] = self._codecs[name].dump(value)
            except (TypeError, ValueError, RecursionError) as refused:
                raise TypeError(f"{self._name}: the argument {name!r}: {misfit(refused)}") from None
        return stored

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> dict[str, Any]:
        """The arguments of a call by name. TypeError names the function and its parameters."""
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as wrong:
            raise TypeError(f"{self._name}: {wrong}; it takes {self._signature}") from None

    def load(self, stored: Mapping[str, Any], /) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the function with. TypeError where the stored call does not fit it any more."""
        unknown = stored.keys() - self._codecs.keys()
        if unknown:
            names = ", ".join(sorted({shown_name(name) for name in unknown})[:10])
            raise TypeError(f"{self._name} has no parameter {names}, but the stored call does")
        call = inspect.BoundArguments(self._signature, {})
        for name, parameter in self._signature.parameters.items():
            if name in stored:
                try:
                    call.arguments[name] = self._codecs[name].load(stored[name])
                except Exception as wrong:
                    raise within(name, wrong) from None
            elif parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"{self._name} needs {name!r}, but the stored call does not have it")
        return call.args, call.kwargs


def _storable(hint: Any) -> bool:
    """Whether it says what is stored: then it is no connection. What says nothing may be one."""
    try:
        codec(hint)
    except TypeError:
        return False
    return hint not in (Any, object)


def _whole(hint: Any, parameter: inspect.Parameter) -> Any:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return tuple.__class_getitem__((hint, ...))
    if parameter.kind is parameter.VAR_KEYWORD:
        return dict.__class_getitem__((str, hint))
    return hint
