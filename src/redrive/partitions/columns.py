"""Columns: what a schema says of each column, and whether a row fits it. Pure."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

Fits = Callable[[Any], bool]


def _dated(value: Any) -> bool:
    if isinstance(value, str):
        try:
            date.fromisoformat(value)
        except ValueError:
            return False
        return True
    return isinstance(value, date) and not isinstance(value, datetime)


def _timed(value: Any) -> bool:
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return False
        return True
    return isinstance(value, datetime)


FITS: dict[Any, Fits] = {
    str: lambda value: isinstance(value, str),
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    float: lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    bool: lambda value: isinstance(value, bool),
    list: lambda value: isinstance(value, list),
    dict: lambda value: isinstance(value, dict),
    date: _dated,
    datetime: _timed,
    type(None): lambda value: value is None,
    None: lambda value: value is None,
    Any: lambda _: True,
    object: lambda _: True,
}
"""Of JSON, and dates and moments, which JSON has as text."""


class Columns:
    """Columns by name, each with the types that its values may have. Immutable: threads may share it."""

    def __init__(self, told: Mapping[str, Any], /, *, extra: bool) -> None:
        """extra: a row may have columns that are not told."""
        if not told:
            raise ValueError('schema() says what a row has: schema({"order_id": str, "amount": float, "note": str | None})')
        self._fits = {name: _either(name, kind) for name, kind in told.items()}
        self._shown = {name: shown(kind) for name, kind in told.items()}
        self._extra = extra

    def problem(self, row: dict[str, Any], /) -> str | None:
        """What is wrong with a row; None where it fits."""
        for name, fits in self._fits.items():
            value = row.get(name)
            if not any(fit(value) for fit in fits):
                if name not in row:
                    return f"{name} is missing"
                return f"{name} is {type(value).__name__}, and {self._shown[name]} is wanted"
        if not self._extra:
            for name in row:
                if name not in self._fits:
                    return f"{name} is not in the schema"
        return None

    def __str__(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self._shown.items())


def shown(kind: Any, /) -> str:
    """A type, for people."""
    if isinstance(kind, tuple):
        return " | ".join(map(shown, kind))
    if kind is None or kind is type(None):
        return "None"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _either(name: str, kind: Any) -> list[Fits]:
    if not isinstance(name, str):
        raise TypeError(f"a column name is a string, not {name!r}")
    if isinstance(kind, tuple):
        return [fit for each in kind for fit in _either(name, each)]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [fit for each in typing.get_args(kind) for fit in _either(name, each)]
    found = FITS.get(typing.get_origin(kind) or kind)
    if found is None:
        known = ", ".join(shown(one) for one in FITS if one is not None)
        raise TypeError(f"schema: the column {name!r} cannot be of {kind!r}; known: {known}, or several: str | None")
    return [found]
