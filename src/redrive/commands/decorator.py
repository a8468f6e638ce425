"""Decorator: what `@app.command(...)` makes of a function, for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from .command import AsyncCommand, PlainCommand, TxCommand

if TYPE_CHECKING:
    import sqlalchemy

P = ParamSpec("P")
R = TypeVar("R")
Coro: TypeAlias = Coroutine[Any, Any, R]


class Decorator(Protocol):
    """For plain and async functions. A coroutine is an R too: the narrower one is first on purpose."""

    @overload
    def __call__(self, fn: Callable[P, Coro[R]], /) -> AsyncCommand[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, R], /) -> PlainCommand[P, R]: ...


class CronDecorator(Protocol):
    """For functions that take nothing."""

    @overload
    def __call__(self, fn: Callable[[], Coro[R]], /) -> AsyncCommand[[], R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[[], R], /) -> PlainCommand[[], R]: ...


class TxDecorator(Protocol):
    """For functions that take the connection first; who submits does not give it."""

    def __call__(self, fn: Callable[Concatenate[sqlalchemy.Connection, P], R], /) -> TxCommand[P, R]:
        """The command."""
