"""Decorator: what `@app.once(..., in_transaction=True)` makes of a function, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    import sqlalchemy

P = ParamSpec("P")
R = TypeVar("R")


class TxOnce(Protocol):
    """The function gets a connection as its first argument; its callers give none."""

    def __call__(self, fn: Callable[Concatenate[sqlalchemy.Connection, P], R], /) -> Callable[P, R]: ...
