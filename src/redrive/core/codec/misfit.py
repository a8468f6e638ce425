"""Misfit: a value that does not fit its annotation. Says where and what was expected, never the value: it may be a secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

LONGEST_NAME = 60
_LIMITS = frozenset(
    """expected expected_tags discriminator gt ge lt le multiple_of min_length max_length actual_length max_digits
    decimal_places whole_digits pattern class class_name field_type method_name expected_schemes tz_expected""".split()
)
"""Parts of a pydantic message that come from the model, not from the input."""


class Misfit(TypeError, ValueError):
    """A value does not fit its annotation. Of both kinds, as the refusals of the standard types are."""

    def __init__(self, problem: str, where: str = "") -> None:
        # Not `password: expected int`: that reads as a name and its value, and redaction would hide it.
        super().__init__(f"{problem} (at {where})" if where else problem)
        self.problem = problem
        self.where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return Misfit, (self.problem, self.where)


def unfit(expected: str, found: object, /) -> Misfit:
    """What was expected, and the type that was found."""
    return Misfit(f"expected {expected}, not {type(found).__name__}")


def within(part: str, wrong: Exception, /) -> Misfit:
    """The same refusal, seen from the object or list that holds the value as this part."""
    inner = misfit(wrong)
    joint = "." if inner.where and not inner.where.startswith("[") else ""
    return Misfit(inner.problem, f"{part}{joint}{inner.where}")


def misfit(wrong: Exception, /, kind: type | None = None) -> Misfit:
    """Any library's refusal without the input. `kind`: the class whose own check raised it.

    Only texts that cannot contain the input are kept: the error of another library often quotes it.
    """
    if isinstance(wrong, Misfit):
        return wrong
    module = type(wrong).__module__.partition(".")[0]
    if module in ("pydantic", "pydantic_core") and hasattr(wrong, "errors"):
        return _of_pydantic(wrong, kind)
    if module == "msgspec":
        return _of_msgspec(wrong)
    if isinstance(wrong, RecursionError):
        return Misfit("nested too deeply, or contains itself")
    if isinstance(wrong, TypeError) and kind is not None and _is_of_the_call(wrong):
        return Misfit(str(wrong))
    return Misfit(f"{'it' if kind is None else kind.__name__} rejects the value ({type(wrong).__name__})")


def raised_by(wrong: BaseException, /) -> str:
    """What a user's function raised over an input, and where. Most libraries quote the input in their text: it is left out."""
    place, trace = "", wrong.__traceback__
    while trace is not None:
        place = f" in {trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    told = f": {wrong}" if isinstance(wrong, Misfit) else ""
    return f"{type(wrong).__name__}{told}{place}"


def shown_name(name: object, /) -> str:
    """A name that came with a payload, where it looks like a name of a field."""
    plain = isinstance(name, str) and name.isidentifier() and len(name) <= LONGEST_NAME
    return str(name) if plain else "(a name that is not an identifier)"


def _is_of_the_call(wrong: TypeError) -> bool:
    """Whether Python refused the call itself: its message has names of parameters only."""
    trace = wrong.__traceback__
    return trace is not None and trace.tb_next is None


def _of_pydantic(wrong: Any, kind: Any) -> Misfit:
    try:
        first = wrong.errors(include_input=False)[0]
        known = _field_names(kind)
        # Names outside of the model are keys of the input.
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" if part in known else ".*" for part in first["loc"])
        # An error of pydantic's own has a page in its docs; a custom one may say anything.
        told = "url" in first and _LIMITS.issuperset(first.get("ctx") or ())
        return Misfit(str(first["msg"] if told else first["type"]), "".join(parts).removeprefix("."))
    except Exception:  # another version of pydantic
        return Misfit("pydantic rejects it")


@lru_cache(256)
def _field_names(kind: Any) -> frozenset[str]:
    """All names of fields in a pydantic model and in the models inside it."""
    try:
        return frozenset(_properties(kind.model_json_schema()))
    except Exception:  # a model without a JSON schema: no names then
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


def _of_msgspec(wrong: Exception) -> Misfit:
    if wrong.__cause__ is not None:
        return Misfit(f"rejected by the class ({type(wrong.__cause__).__name__})")
    what, found, place = str(wrong).rpartition(" - at `$")
    what, place = (what, place.rstrip("`")) if found else (place, "")
    if not what.startswith(("Expected ", "Object missing ")):
        what = what.partition("'")[0].partition("`")[0].strip()  # then comes the value
    return Misfit(what, place.removeprefix("."))
