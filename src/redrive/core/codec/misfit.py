"""Misfit: a value that does not fit its annotation.

The message has the place and the expected type, but never the value, which may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

MAX_NAME_CHARS = 60
_MODEL_CONTEXT = frozenset(
    """expected expected_tags discriminator gt ge lt le multiple_of min_length max_length
    actual_length max_digits decimal_places whole_digits pattern class class_name field_type
    method_name expected_schemes tz_expected""".split()
)
"""Parts of a pydantic message that come from the model, not from the input."""


class Misfit(TypeError, ValueError):
    """A value does not fit its annotation. It has both bases of the errors of standard types."""

    def __init__(self, problem: str, where: str = "") -> None:
        # Not `password: expected int`, because redaction would hide the text after the colon.
        super().__init__(f"{problem} (at {where})" if where else problem)
        self.problem = problem
        self.where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return Misfit, (self.problem, self.where)


def unfit(expected: str, value: object, /) -> Misfit:
    """Return an error with the expected type and the type of the value."""
    return Misfit(f"expected {expected}, not {type(value).__name__}")


def within(part: str, error: Exception, /) -> Misfit:
    """Return the error of a part of an object or list, with the path of the part."""
    inner = misfit(error)
    separator = "." if inner.where and not inner.where.startswith("[") else ""
    return Misfit(inner.problem, f"{part}{separator}{inner.where}")


def misfit(error: Exception, /, kind: type | None = None) -> Misfit:
    """Return the error of any library without the input.

    The messages of other libraries often quote the input. Only texts that cannot contain it stay.

    Args:
        error: The error.
        kind: The class whose check raised it.
    """
    if isinstance(error, Misfit):
        return error
    module = type(error).__module__.partition(".")[0]
    if module in ("pydantic", "pydantic_core") and hasattr(error, "errors"):
        return _of_pydantic(error, kind)
    if module == "msgspec":
        return _of_msgspec(error)
    if isinstance(error, RecursionError):
        return Misfit("nested too deeply, or contains itself")
    if isinstance(error, TypeError) and kind is not None and _is_call_error(error):
        return Misfit(str(error))
    return Misfit(
        f"{'it' if kind is None else kind.__name__} rejects the value ({type(error).__name__})"
    )


def raised_by(error: BaseException, /) -> str:
    """Return the type and place of an error of a user's function, without its message.

    Most libraries quote the input in their messages.
    """
    place, trace = "", error.__traceback__
    while trace is not None:
        place = f" in {trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    message = f": {error}" if isinstance(error, Misfit) else ""
    return f"{type(error).__name__}{message}{place}"


def shown_name(name: object, /) -> str:
    """Return a name of a payload if it looks like the name of a field."""
    is_shown = isinstance(name, str) and name.isidentifier() and len(name) <= MAX_NAME_CHARS
    return str(name) if is_shown else "(a name that is not an identifier)"


def _is_call_error(error: TypeError) -> bool:
    """Return whether Python rejected the call. Its message has only names of parameters."""
    trace = error.__traceback__
    return trace is not None and trace.tb_next is None


def _of_pydantic(error: Any, kind: Any) -> Misfit:
    try:
        first = error.errors(include_input=False)[0]
        names = _field_names(kind)
        # Names outside of the model are keys of the input.
        parts = (
            f"[{part}]" if isinstance(part, int) else f".{part}" if part in names else ".*"
            for part in first["loc"]
        )
        # Errors of pydantic itself have a page in its docs. The text of others may be anything.
        is_known = "url" in first and _MODEL_CONTEXT.issuperset(first.get("ctx") or ())
        message = str(first["msg"] if is_known else first["type"])
        return Misfit(message, "".join(parts).removeprefix("."))
    except Exception:  # another version of pydantic
        return Misfit("pydantic rejects it")


@lru_cache(256)
def _field_names(kind: Any) -> frozenset[str]:
    """Return the names of all fields of a pydantic model and of the models inside it."""
    try:
        return frozenset(_properties(kind.model_json_schema()))
    except Exception:  # a model without a JSON schema
        return frozenset(getattr(kind, "model_fields", ()))


def _properties(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            yield from properties
        for inner in schema.values():
            yield from _properties(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _properties(inner)


def _of_msgspec(error: Exception) -> Misfit:
    if error.__cause__ is not None:
        return Misfit(f"rejected by the class ({type(error.__cause__).__name__})")
    message, separator, place = str(error).rpartition(" - at `$")
    message, place = (message, place.rstrip("`")) if separator else (place, "")
    if not message.startswith(("Expected ", "Object missing ")):
        message = message.partition("'")[0].partition("`")[0].strip()  # the value follows
    return Misfit(message, place.removeprefix("."))
