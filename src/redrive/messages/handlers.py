"""Handlers: those of an app, by name and by type of event."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .handler import EVERYTHING, Handler, handler

F = TypeVar("F", bound=Callable[..., Any])
MOST = 1000
"""Types whose handlers are kept at hand; others may send any number of them."""


class Handlers:
    """The handlers of an app. Threads may share it, and so may forked children."""

    def __init__(self, taken: Callable[[str], str | None]) -> None:
        """taken: where a name is taken by something else that runs, which the ledger could not tell apart."""
        self._taken = taken
        self._named: dict[str, Handler] = {}
        self._typed: dict[str, list[Handler]] = {}
        self._parts: dict[str, list[tuple[str, int]]] = {}

    def decorator(self, types: tuple[str, ...], **told: Any) -> Callable[[F], F]:
        """What registers a function for events of these types; the function stays as it is."""
        if any(callable(one) for one in types):  # at once: a bare `@app.on` would decorate nothing, and nobody would handle
            raise TypeError(f'event types must be names, not {types!r}; write @app.on("session.completed"), or "*" for all')

        def decorated(fn: F) -> F:
            self.add(handler(fn, types, **told))
            return fn

        return decorated

    def add(self, new: Handler, /) -> None:
        """ValueError where the name is taken: the ledger could not tell whose a job is."""
        known = self._named.get(new.name)
        other = known.place if known else self._taken(new.name)
        if other is not None and not (known and hasattr(sys, "ps1")):  # who sits at a prompt defines it again and again
            raise ValueError(
                f"handler name {new.name!r} is already used by {other}; name {new.place} with @app.on(..., name=...)"
            )
        self._named[new.name] = new
        self._typed, self._parts = {}, {}
        for one in self._named.values():
            for type_ in one.types:
                self._typed.setdefault(type_, []).append(one)

    def of(self, type_: str, /) -> list[Handler]:
        """Those who handle events of this type."""
        found = self._typed.get(type_, [])
        everything = self._typed.get(EVERYTHING)
        return [*found, *(one for one in everything if one not in found)] if everything else found

    def parts(self, type_: str, /) -> list[tuple[str, int]]:
        """Those who handle events of this type: their names, and how many attempts each makes."""
        found = self._parts.get(type_)
        if found is None:
            found = [(one.name, one.settings.max_attempts) for one in self.of(type_)]
            if len(self._parts) < MOST:
                self._parts[type_] = found
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._named

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._named.values())

    def __len__(self) -> int:
        return len(self._named)
