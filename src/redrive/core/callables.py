"""The names and signatures of functions for messages, without the values bound to them.

Messages are stored, logged and exported. A default, an argument of a `partial`, a field of a
callable object and the metadata of `Annotated` may be a secret.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import partial
from typing import Any


class _Hidden:
    def __repr__(self) -> str:
        return "…"


_DEFAULT = _Hidden()


def function_name(fn: object, /) -> str:
    """Return the qualified name of a function, of a partial's function, or of an object's class."""
    fn = _unwrap_partial(fn)
    name = getattr(fn, "__qualname__", None)
    return name if isinstance(name, str) else type(fn).__qualname__


def qualified_name(fn: object, /) -> str:
    """Return the module and name of a function, as `function_name` finds it."""
    fn = _unwrap_partial(fn)
    has_name = isinstance(getattr(fn, "__qualname__", None), str)
    module = getattr(fn if has_name else type(fn), "__module__", None)
    return f"{module or '?'}.{function_name(fn)}"


def signature_text(fn: Callable[..., Any], /, *, skip: int = 0) -> str:
    """Return the signature of a function, with `…` for every default.

    Args:
        fn: The function.
        skip: Number of leading parameters to leave out.
    """
    signature = inspect.signature(fn)
    try:
        hints = typing.get_type_hints(_unwrap_partial(fn))  # without the metadata of `Annotated`
    except Exception:  # An annotation that cannot be evaluated is not shown.
        hints = {}
    parameters = [
        parameter.replace(
            default=parameter.empty if parameter.default is parameter.empty else _DEFAULT,
            annotation=hints.get(parameter.name, parameter.empty),
        )
        for parameter in list(signature.parameters.values())[skip:]
    ]
    returned = hints.get("return", signature.empty)
    return str(signature.replace(parameters=parameters, return_annotation=returned)).replace(
        "NoneType", "None"
    )


def describe_problem(problem: Exception, fn: object, /) -> str:
    """Return the message of an error about a function, with its name instead of its repr."""
    return str(problem).replace(repr(fn), function_name(fn))


def _unwrap_partial(fn: object) -> object:
    while isinstance(fn, partial):
        fn = fn.func
    return fn
